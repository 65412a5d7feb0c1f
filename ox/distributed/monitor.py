"""Status notes between the ranks of a group, for errors that name the rank and the operation.

A rank sends a note when it has waited for a while (with the operation), when it ends, and when its wait has timed out,
so that all ranks report the same failure. No notes are sent while all ranks are in time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from ox.clock import Clock

GRACE = 0.5  # seconds to wait for the notes of the others


@dataclass(frozen=True)
class Note:
    """The last status of a rank: it `waits` in an operation, `failed` in it, or `left` the program."""

    state: str
    number: int  # of the collective, counted per group; 0 for other operations
    text: str

    def __str__(self) -> str:
        return self.text if self.state == "left" else f"waits in {self.text}"


class Monitor:
    """Sends and receives the notes of one group."""

    def __init__(self, control: Any, clock: Clock) -> None:
        self._control, self._clock = control, clock
        self._lock = threading.Lock()
        self._pending: list[Any] = []
        self.notes: dict[int, Note] = {}
        self.arrived: dict[int, int] = {}  # the last collective that each rank is known to have reached

    def send(self, state: str, number: int, text: str) -> None:
        """Sends a note to all other ranks."""
        note = f"{state}\n{number}\n{text}".encode()
        with self._lock:
            self._pending = [request for request in self._pending if not request.test()]
            for rank in range(self._control.size):
                if rank != self._control.rank:
                    self._pending.append(self._control.write(note, rank))

    def receive(self) -> None:
        """Receives the notes that have arrived."""
        with self._lock:
            for rank, note in self._control.read():
                state, number, text = note.decode().split("\n", 2)
                if state == "goes on":
                    self.notes.pop(rank, None)
                    continue
                self.notes[rank] = Note(state, int(number), text)
                if state != "left":
                    self.arrived[rank] = max(self.arrived.get(rank, 0), int(number))

    def ended(self, number: int, peer: int | None) -> list[int]:
        """The ranks that ended before they reached collective `number`; for 0, the `peer` of a message if it ended."""
        left = [rank for rank, note in self.notes.items() if note.state == "left"]
        return [rank for rank in left if (self.arrived.get(rank, 0) < number if number else rank == peer)]

    def failed(self) -> list[int]:
        """The ranks whose wait has failed."""
        return [rank for rank, note in self.notes.items() if note.state == "failed"]

    def wait_for_notes(self) -> None:
        """Waits up to `GRACE` seconds for notes of the other ranks."""
        until = self._clock.now() + GRACE
        while self._clock.now() < until and len(self.notes) < self._control.size - 1:
            self.receive()
            self._clock.sleep(0.01)

    def missing(self, number: int) -> list[int]:
        """The ranks that have not reached collective `number`, as far as this rank knows."""
        others = (rank for rank in range(self._control.size) if rank != self._control.rank)
        return [rank for rank in others if self.arrived.get(rank, 0) < number]
