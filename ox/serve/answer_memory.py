"""Memory of results and answers, counted from the run that makes them until the last byte has left for the client.

What is counted is the array itself: its bytes are given back when it is freed, whoever held it last: a connection, a
stream, a job whose client has gone. So no way that an answer can take forgets to count, or counts twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from sys import getsizeof
from time import perf_counter
from typing import NamedTuple
from weakref import ref

import numpy as np

from ox.graph.contract import Array

LARGE = 64 << 10  # bytes of an answer, from which on it is counted by itself and sent without being copied
TINY = 4 << 10  # bytes of a part of one that are not worth counting
SPARE = 8  # small answers that clients leave unread may always have this part of the limit


class Parts:
    """A large answer in pieces, which are not put together before they leave."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        self.parts = parts
        self.size = sum(map(len, parts))

    def __len__(self) -> int:
        return self.size

    def after(self, start: bytes) -> Parts:
        """The same with something before it."""
        first = self.parts[0]
        if isinstance(first, bytes):
            return Parts([start + first, *self.parts[1:]])
        return Parts([start, *self.parts])

    def join(self) -> bytes:
        """The whole of it, copied."""
        return b"".join(self.parts)


Body = bytes | Parts


def raw(array: Array) -> memoryview:
    """The bytes of a contiguous array, which they keep alive."""
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def held_by(arrays: Iterable[Array]) -> int:
    """Bytes of memory that arrays hold, with the strings that an array of objects refers to."""
    size = 0
    for array in arrays:
        size += array.nbytes
        if array.dtype.kind == "O":
            size += sum(map(getsizeof, array.ravel().tolist()))
    return size


class _Counted(ref[Array]):
    """An array that is counted."""

    __slots__ = ("size",)

    size: int


class Need(NamedTuple):
    """What a run asks for: room for the `least` bytes that `rows` take, up to `most` if there is as much. One that does
    not `wait` gets what there is."""

    rows: int
    least: int
    most: int
    wait: bool = True


class Grant(NamedTuple):
    """What a run needed in the end, and the bytes that it was given for it."""

    need: Need
    size: int


class AnswerMemory:
    """Bytes of large results and answers of a server, and the room that is left for more.

    Called from the instances' threads and from the event loop.

    Args:
        limit: the most bytes; a run that would exceed it waits.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.unread = 0  # bytes of small answers that clients have not taken, which the front counts
        self.peak = 0  # the most that was held since somebody last set it to 0
        self.waits = 0  # runs that had to wait
        self.waited_s = 0.0
        self.since: float | None = None  # when the run began to wait that waits now (perf_counter)
        self._held = 0
        self._lock = threading.Lock()
        self._waiting: tuple[SimpleQueue[None], ...] = ()  # who waits: the first for room, the others for their turn
        self._freed: deque[int] = deque()
        self._counted: dict[int, _Counted] = {}
        self.emptied: Callable[[], None] | None = None  # called, in any thread, when nothing large is held any more

    @property
    def held(self) -> int:
        """Bytes that are held, or promised to a run."""
        with self._lock:
            self._settle()
            return self._held

    # ---- runs

    def acquire(self, ask: Callable[[], Need | None]) -> Grant | None:
        """Waits until there is room for what a run needs, which whoever waits longest gets first.

        Args:
            ask: tells what it needs; asked again whenever something may have changed. None for no more than a little.

        Returns: what it was given for what it needed in the end; None once it needs nothing.
        """
        need = ask()
        if need is None or not need.wait:
            return self._at_once(need)
        wake: SimpleQueue[None] = SimpleQueue()
        with self._lock:
            self._waiting += (wake,)
        try:
            return self._wait(ask, wake)
        finally:
            self._leave(wake)

    def look_again(self) -> None:
        """Has those that wait ask again what they need: it may be less, or nothing."""
        for wake in self._waiting:
            wake.put(None)

    def _wait(self, ask: Callable[[], Need | None], wake: SimpleQueue[None]) -> Grant | None:
        while True:
            # This one is in `_waiting` before it looks: whatever changes after that leaves a word.
            need = ask()
            if need is None or not need.wait:
                return self._at_once(need)
            if self._waiting[0] is wake:
                room = self._try(need)
                if room is not None:
                    return Grant(need, room)
                if self.since is None:
                    self.since = perf_counter()
                    self.waits += 1
            wake.get()

    def _leave(self, wake: SimpleQueue[None]) -> None:
        with self._lock:
            if self._waiting[0] is wake and self.since is not None:
                self.waited_s += perf_counter() - self.since
                self.since = None
            self._waiting = tuple(other for other in self._waiting if other is not wake)
        self._wake_first()

    def _wake_first(self) -> None:
        waiting = self._waiting
        if waiting:
            waiting[0].put(None)

    def _at_once(self, need: Need | None) -> Grant | None:
        if need is None:
            return None
        return Grant(need, 0 if self._waiting else self._try(need) or 0)

    def charge(self, size: int) -> None:
        """Counts bytes that somebody else holds, until they are given back."""
        with self._lock:
            self._settle()
            self._add(size)

    def release(self, size: int) -> None:
        """Gives back what `acquire` gave, or `charge` took."""
        self._free(size)

    def _try(self, need: Need) -> int | None:
        with self._lock:
            self._settle()
            room = self.limit - self._held - self.unread
            # An answer that is larger than all of it still passes, alone.
            if need.least > room and self._held:
                return None
            size = max(need.least, min(need.most, room))
            self._add(size)
            return size

    # ---- what they made

    def keep(self, arrays: Sequence[Array], promised: int = 0) -> list[Array]:
        """Counts arrays for as long as they live: copies, where they do not own their bytes, so that ONNX Runtime's own
        memory is free for the next run. What was promised for them by `acquire` is used up."""
        kept = [
            array if array.flags.owndata and array.flags.c_contiguous else array.copy(order="C") for array in arrays
        ]
        self._count(kept, promised)  # only now: there may be no memory for one of the copies
        return kept

    def counted(self, body: Body) -> Parts:
        """A large answer, of which everything counts that is no array that does already."""
        parts = body.parts if isinstance(body, Parts) else (body,)
        return Parts([self._bytes(part) if isinstance(part, bytes) and len(part) >= TINY else part for part in parts])

    def _bytes(self, data: bytes) -> memoryview:
        array = np.frombuffer(data, np.uint8)
        self._count([array])
        return memoryview(array)  # type: ignore[arg-type]

    def _count(self, arrays: Sequence[Array], promised: int = 0) -> None:
        """Counts arrays before anything gives them back: whatever fails on the way, no bytes are given back twice."""
        entries = []
        for array in arrays:
            entry = _Counted(array, self._gone)
            entry.size = held_by((array,))
            entries.append(entry)
        self.charge(sum(entry.size for entry in entries) - promised)
        for entry in entries:
            self._counted[id(entry)] = entry

    def unread_by(self, size: int) -> None:
        """Small answers wait for their clients, or (negative) no longer do."""
        self.unread += size
        if size < 0:
            self._wake_first()

    # An array is freed anywhere, also in a collection in the middle of what holds the lock: these may not take it.

    def _gone(self, entry: ref[Array]) -> None:
        assert isinstance(entry, _Counted)
        self._counted.pop(id(entry), None)
        self._free(entry.size)
        if self.emptied is not None and not self._counted:
            self.emptied()

    def _free(self, size: int) -> None:
        self._freed.append(size)
        self._wake_first()

    def _settle(self) -> None:
        freed = self._freed
        while freed:
            self._held -= freed.popleft()

    def _add(self, size: int) -> None:
        self._held += size
        self.peak = max(self.peak, self._held)
