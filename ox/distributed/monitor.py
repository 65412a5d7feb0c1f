"""Who waits where: short notes between the ranks of a group, beside its data.

A rank that waits long tells the others in which operation, a rank that ends says so, and one whose patience is over
tells it, so that all speak at once of the same thing. Nothing is sent while everybody is in time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

GRACE = 0.5  # seconds in which the notes of the others may still come


@dataclass(frozen=True)
class Note:
    """What a rank last said: it `waits` in an operation, `failed` in it, or `left` the program."""

    state: str
    number: int  # of the collective, counted in the group; 0 for what is none
    text: str

    def __str__(self) -> str:
        return self.text if self.state == "left" else f"waits in {self.text}"


class Monitor:
    """The notes of one group."""

    def __init__(self, control: Any) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._sent: list[Any] = []
        self.heard: dict[int, Note] = {}
        self.arrived: dict[int, int] = {}  # the last collective that each rank is known to have come to

    def tell(self, state: str, number: int, text: str) -> None:
        """Say to all other ranks where this one is."""
        note = f"{state}\n{number}\n{text}".encode()
        with self._lock:
            self._sent = [request for request in self._sent if not request.test()]
            for rank in range(self._control.size):
                if rank != self._control.rank:
                    self._sent.append(self._control.write(note, rank))

    def listen(self) -> None:
        """Take in the notes that have come."""
        with self._lock:
            for rank, note in self._control.read():
                state, number, text = note.decode().split("\n", 2)
                if state == "goes on":
                    self.heard.pop(rank, None)
                    continue
                self.heard[rank] = Note(state, int(number), text)
                if state != "left":
                    self.arrived[rank] = max(self.arrived.get(rank, 0), int(number))

    def gone(self, number: int, peer: int | None) -> list[int]:
        """The ranks that ended without having come to collective `number`, or to send what a peer is waited for."""
        left = [rank for rank, note in self.heard.items() if note.state == "left"]
        return [rank for rank in left if (self.arrived.get(rank, 0) < number if number else rank == peer)]

    def failed(self) -> list[int]:
        """The ranks that have given up."""
        return [rank for rank, note in self.heard.items() if note.state == "failed"]

    def last_words(self) -> None:
        """Wait a little for what the others still have to say."""
        until = monotonic() + GRACE
        while monotonic() < until and len(self.heard) < self._control.size - 1:
            self.listen()
            sleep(0.01)

    def missing(self, number: int) -> list[int]:
        """The ranks that have not come to collective `number`, as far as this one knows."""
        others = (rank for rank in range(self._control.size) if rank != self._control.rank)
        return [rank for rank in others if self.arrived.get(rank, 0) < number]
