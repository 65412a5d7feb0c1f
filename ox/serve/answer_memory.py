"""Memory of results and answers, counted from the run that makes them until the last byte has left for the client.

What is counted is the array itself: its bytes are given back when it is freed, whoever held it last: a connection, a
stream, a job whose client has gone. So no way that an answer can take forgets to count, or counts twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter
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


class _Counted(ref[Array]):
    """An array that is counted."""

    __slots__ = ("size",)

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
        self._turn = threading.Lock()  # held by the run that waits for room; the others wait for it
        self._freed: deque[int] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._counted: dict[int, _Counted] = {}
        self.emptied: Callable[[], None] | None = None  # called, in any thread, when nothing large is held any more

    @property
    def held(self) -> int:
        """Bytes that are held, or promised to a run."""
        with self._lock:
            self._settle()
            return self._held

    # ---- runs

    def acquire(self, least: int, most: int, wait: bool = True) -> int:
        """Waits until there is room for the `least` that a run makes; gives the room that it got, up to `most`.

        One that does not `wait` gets 0 where there is none.
        """
        if not wait:
            return (self._try(least, most) or 0) if self.since is None else 0
        with self._turn:
            room = self._try(least, most)
            if room is None:
                begun = self.since = perf_counter()
                self.waits += 1
                while room is None:
                    # `since` was set before this look: whatever is freed after it leaves a word.
                    room = self._try(least, most)
                    if room is None:
                        self._wake.get()
                self.since = None
                self.waited_s += perf_counter() - begun
        return room

    def charge(self, size: int) -> None:
        """Counts bytes that somebody else holds, until they are given back."""
        with self._lock:
            self._settle()
            self._add(size)

    def release(self, size: int) -> None:
        """Gives back what `acquire` gave, or `charge` took."""
        self._free(size)

    def _try(self, least: int, most: int) -> int | None:
        with self._lock:
            self._settle()
            room = self.limit - self._held - self.unread
            # An answer that is larger than all of it still passes, alone.
            if least > room and self._held:
                return None
            size = max(least, min(most, room))
            self._add(size)
            return size

    # ---- what they made

    def keep(self, arrays: Sequence[Array], promised: int = 0) -> list[Array]:
        """Counts arrays for as long as they live: copies, where they do not own their bytes, so that ONNX Runtime's own
        memory is free for the next run. What was promised for them by `acquire` is used up."""
        kept = []
        for array in arrays:
            if not array.flags.owndata or not array.flags.c_contiguous:
                array = array.copy(order="C")
            self._count(array)
            kept.append(array)
        self.charge(sum(array.nbytes for array in kept) - promised)
        return kept

    def counted(self, body: Body) -> Parts:
        """A large answer, of which everything counts that is no array that does already."""
        parts = body.parts if isinstance(body, Parts) else (body,)
        return Parts([self._bytes(part) if isinstance(part, bytes) and len(part) >= TINY else part for part in parts])

    def _bytes(self, data: bytes) -> memoryview:
        array = np.frombuffer(data, np.uint8)
        self._count(array)
        self.charge(len(data))
        return memoryview(array)  # type: ignore[arg-type]

    def _count(self, array: Array) -> None:
        entry = _Counted(array, self._gone)
        entry.size = array.nbytes
        self._counted[id(entry)] = entry

    def unread_by(self, size: int) -> None:
        """Small answers wait for their clients, or (negative) no longer do."""
        self.unread += size
        if size < 0 and self.since is not None:
            self._wake.put(None)

    # An array is freed anywhere, also in a collection in the middle of what holds the lock: these may not take it.

    def _gone(self, entry: ref[Array]) -> None:
        assert isinstance(entry, _Counted)
        self._counted.pop(id(entry), None)
        self._free(entry.size)
        if self.emptied is not None and not self._counted:
            self.emptied()

    def _free(self, size: int) -> None:
        self._freed.append(size)
        if self.since is not None:
            self._wake.put(None)

    def _settle(self) -> None:
        freed = self._freed
        while freed:
            self._held -= freed.popleft()

    def _add(self, size: int) -> None:
        self._held += size
        self.peak = max(self.peak, self._held)
