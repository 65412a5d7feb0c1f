"""Counts the memory of inference results and responses, from the run until the last byte has been sent.

It tracks the arrays themselves by weak references: the bytes are released when an array is freed, whether a connection,
a stream or an abandoned job held it last. So no path of a response is missed or counted twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from sys import getsizeof
from typing import NamedTuple
from weakref import ref

import numpy as np

from ox.clock import Clock
from ox.graph.contract import Array

LARGE = 64 << 10  # bytes; responses from this size on are counted and sent without a copy
TINY = 4 << 10  # bytes; smaller buffers of a response are not counted
SMALL_SHARE = 8  # unread small responses always have 1/8 of the limit


class Buffers:
    """A large body as a list of buffers, sent without joining them."""

    __slots__ = ("buffers", "size")

    def __init__(self, buffers: Sequence[bytes | memoryview]) -> None:
        self.buffers = buffers
        self.size = sum(map(len, buffers))

    def __len__(self) -> int:
        return self.size

    def with_prefix(self, prefix: bytes) -> Buffers:
        """The same body after a prefix."""
        first = self.buffers[0]
        if isinstance(first, bytes):
            return Buffers([prefix + first, *self.buffers[1:]])
        return Buffers([prefix, *self.buffers])

    def join(self) -> bytes:
        """Copies all buffers into one."""
        return b"".join(self.buffers)


Body = bytes | Buffers


def buffer_of(array: Array) -> memoryview:
    """The memory of a contiguous array as bytes; the view keeps the array alive."""
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def memory_of(arrays: Iterable[Array]) -> int:
    """Bytes of memory of arrays, with the strings of object arrays."""
    size = 0
    for array in arrays:
        size += array.nbytes
        if array.dtype.kind == "O":
            size += sum(map(getsizeof, array.ravel().tolist()))
    return size


class _TrackedArray(ref[Array]):
    """A weak reference to an array, with the array's size."""

    __slots__ = ("size",)

    size: int


class MemoryRequest(NamedTuple):
    """What a run needs for `rows` rows: at least `min_bytes`, up to `max_bytes` if they are free. Without `wait` it
    gets what is free, perhaps 0."""

    rows: int
    min_bytes: int
    max_bytes: int
    wait: bool = True


class Grant(NamedTuple):
    """The granted request and its bytes."""

    request: MemoryRequest
    size: int


class ResponseMemory:
    """The memory budget of a server for results and large responses.

    Thread-safe: used by the threads of the instances and by the event loop.

    Args:
        limit: bytes; a run that would exceed it waits.
        clock: measures these waits.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self.limit, self._now = limit, clock.now
        self.unread = 0  # bytes of small responses that clients have not read, counted by the listener
        self.peak = 0  # the highest `used` since the last reset to 0
        self.wait_count = 0  # runs that had to wait
        self.wait_s = 0.0
        self.waiting_since: float | None = None  # start of the current wait
        self._used = 0
        self._lock = threading.Lock()
        self._waiters: tuple[SimpleQueue[None], ...] = ()  # the first waits for memory, the others for their turn
        self._freed_sizes: deque[int] = deque()
        self._tracked: dict[int, _TrackedArray] = {}
        self.on_empty: Callable[[], None] | None = None  # called in any thread when no tracked array is left

    @property
    def used(self) -> int:
        """Bytes in use or granted to a run."""
        with self._lock:
            self._apply_freed()
            return self._used

    # ---- runs

    def acquire(self, get_request: Callable[[], MemoryRequest | None]) -> Grant | None:
        """Waits until the memory that a run needs is free, first come, first served.

        Args:
            get_request: returns what the run needs, None for a small result; called again after each change.

        Returns: the grant; None if the run needs no memory.
        """
        request = get_request()
        if request is None or not request.wait:
            return self._acquire_now(request)
        wake: SimpleQueue[None] = SimpleQueue()
        with self._lock:
            self._waiters += (wake,)
        try:
            return self._wait(get_request, wake)
        finally:
            self._stop_waiting(wake)

    def wake_all(self) -> None:
        """Wakes all waiting runs, so that they call `get_request` again."""
        for wake in self._waiters:
            wake.put(None)

    def _wait(self, get_request: Callable[[], MemoryRequest | None], wake: SimpleQueue[None]) -> Grant | None:
        while True:
            # This run is in `_waiters` already, so that no change after this call is missed.
            request = get_request()
            if request is None or not request.wait:
                return self._acquire_now(request)
            if self._waiters[0] is wake:
                size = self._try_acquire(request)
                if size is not None:
                    return Grant(request, size)
                if self.waiting_since is None:
                    self.waiting_since = self._now()
                    self.wait_count += 1
            wake.get()

    def _stop_waiting(self, wake: SimpleQueue[None]) -> None:
        with self._lock:
            if self._waiters[0] is wake and self.waiting_since is not None:
                self.wait_s += self._now() - self.waiting_since
                self.waiting_since = None
            self._waiters = tuple(other for other in self._waiters if other is not wake)
        self._wake_first()

    def _wake_first(self) -> None:
        waiting = self._waiters
        if waiting:
            waiting[0].put(None)

    def _acquire_now(self, request: MemoryRequest | None) -> Grant | None:
        if request is None:
            return None
        return Grant(request, 0 if self._waiters else self._try_acquire(request) or 0)

    def charge(self, size: int) -> None:
        """Counts bytes that other code holds, until `release`."""
        with self._lock:
            self._apply_freed()
            self._add(size)

    def release(self, size: int) -> None:
        """Releases bytes of `acquire` or `charge`."""
        self._release(size)

    def _try_acquire(self, request: MemoryRequest) -> int | None:
        with self._lock:
            self._apply_freed()
            free = self.limit - self._used - self.unread
            # A response above the whole limit is granted if nothing else is in use.
            if request.min_bytes > free and self._used:
                return None
            size = max(request.min_bytes, min(request.max_bytes, free))
            self._add(size)
            return size

    # ---- arrays

    def track(self, arrays: Sequence[Array], reserved: int = 0) -> list[Array]:
        """Counts arrays until they are freed. Copies those that do not own their memory, so that ONNX Runtime can reuse
        it for the next run. `reserved` are the bytes granted for them by `acquire`."""
        tracked = [
            array if array.flags.owndata and array.flags.c_contiguous else array.copy(order="C") for array in arrays
        ]
        self._track(tracked, reserved)  # after the copies, one of which may raise MemoryError
        return tracked

    def track_body(self, body: Body) -> Buffers:
        """Counts the buffers of a large body that are not counted as arrays already."""
        buffers = body.buffers if isinstance(body, Buffers) else (body,)
        return Buffers(
            [self._track_bytes(part) if isinstance(part, bytes) and len(part) >= TINY else part for part in buffers]
        )

    def _track_bytes(self, data: bytes) -> memoryview:
        array = np.frombuffer(data, np.uint8)
        self._track([array])
        return memoryview(array)  # type: ignore[arg-type]

    def _track(self, arrays: Sequence[Array], reserved: int = 0) -> None:
        """Creates all weak references before it counts, so that an exception leaves the count unchanged."""
        entries = []
        for array in arrays:
            entry = _TrackedArray(array, self._on_free)
            entry.size = memory_of((array,))
            entries.append(entry)
        self.charge(sum(entry.size for entry in entries) - reserved)
        for entry in entries:
            self._tracked[id(entry)] = entry

    def add_unread(self, size: int) -> None:
        """Adds bytes of small responses that wait for clients; negative when they no longer wait."""
        self.unread += size
        if size < 0:
            self._wake_first()

    # An array can be freed during a garbage collection while the lock is held: these methods do not take the lock.

    def _on_free(self, entry: ref[Array]) -> None:
        assert isinstance(entry, _TrackedArray)
        self._tracked.pop(id(entry), None)
        self._release(entry.size)
        if self.on_empty is not None and not self._tracked:
            self.on_empty()

    def _release(self, size: int) -> None:
        self._freed_sizes.append(size)
        self._wake_first()

    def _apply_freed(self) -> None:
        freed = self._freed_sizes
        while freed:
            self._used -= freed.popleft()

    def _add(self, size: int) -> None:
        self._used += size
        self.peak = max(self.peak, self._used)
