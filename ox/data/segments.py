"""Memory that a worker and the loader share: the worker writes a batch there, the loader reads it in place.

A segment is a file without a name (`memfd`), handed over as a file descriptor and mapped by both: when the last process
that has it ends, however it ends, it is gone. It is the worker's to write until a batch lies in it, and then the
batch's until the last array of that batch is garbage.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref
from collections import deque
from threading import get_ident
from typing import Any

import numpy as np

from ox.data.wire import Array, Blob, dtype_name

SMALL = 1 << 14  # arrays up to this many bytes travel in the message
GRAIN = 1 << 16  # segments are multiples of this
HELD = 256  # batches that a program may hold in shared memory; those beyond are copied
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)


def make_file(size: int) -> int:
    """The file descriptor of `size` shared bytes."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("ox-batch", os.MFD_CLOEXEC)
    else:  # macOS
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


class Segment:
    """Shared memory as the worker has it."""

    __slots__ = ("array", "fd", "number", "size", "used")

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size, self.used = number, size, 0
        self.fd = make_file(size)
        self.array: Array = np.frombuffer(mmap.mmap(self.fd, size), np.uint8)

    def untouched(self) -> bool:
        """Whether no array of the dataset's or of a collate_fn still looks into it."""
        return sys.getrefcount(self.array) == 2  # our own, and the argument


class Arena:
    """The worker's side: where the arrays of a batch are made. `empty` is `np.empty` in shared memory."""

    def __init__(self, keep: int) -> None:
        self._keep = keep  # free segments worth keeping
        self._free: list[Segment] = []
        self._lent: dict[int, Segment] = {}
        self._current: list[Segment] = []
        self._dropped: list[int] = []
        self._largest = 0  # bytes of the largest batch
        self._numbers = 0
        self._thread = get_ident()
        self.blob = Blob()

    def empty(self, shape: Any, dtype: Any) -> Array:
        """An uninitialized array for the batch that is being made."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size <= SMALL or get_ident() != self._thread:  # a dataset may have threads of its own
            return np.empty(shape, dtype)
        segment = self._current[-1] if self._current else None
        if segment is None or segment.size - segment.used < size:
            segment = self._take(size)
        start = segment.used
        segment.used = start + size + -size % 64
        # sliced first: the array must refer to the segment's own, which is how `untouched` finds it
        own: Array = segment.array[start : start + size].view(dtype).reshape(shape)
        return own

    def put(self, array: Array) -> list[Any]:
        """Say where an array lies, after a copy unless `empty` made it."""
        if array.nbytes <= SMALL:
            return self.blob.put(array)
        segment = next((s for s in self._current if array.base is s.array), None)
        if segment is None or not array.flags.c_contiguous:
            own = self.empty(array.shape, array.dtype)
            np.copyto(own, array)
            return self.put(own)
        offset = array.__array_interface__["data"][0] - segment.array.__array_interface__["data"][0]
        return [segment.number, offset, dtype_name(array.dtype), list(array.shape)]

    def hand_over(self) -> tuple[dict[str, Any], Blob, list[int]]:
        """End the batch: what the message says of its segments, the bytes in the message, and new segments' files,
        which the caller closes when they are sent."""
        used = [[s.number, min(s.used, s.size), s.size] for s in self._current]
        self._largest = max(self._largest, sum(s.used for s in self._current))
        fds = []
        for segment in self._current:
            if segment.fd >= 0:
                fds.append(segment.fd)
            self._lent[segment.number] = segment
        new = [s.number for s in self._current if s.fd >= 0]
        for segment in self._current:
            segment.fd = -1
        told = {"segments": used, "new": new, "dropped": self._dropped, "fds": len(fds)}
        blob, self._current, self._dropped, self.blob = self.blob, [], [], Blob()
        return told, blob, fds

    def discard(self) -> None:
        """Begin anew: the batch came to nothing."""
        for segment in self._current:
            if segment.fd >= 0:  # the loader never heard of it
                os.close(segment.fd)
            else:
                self._back(segment)
        self._current, self.blob = [], Blob()

    def release(self, numbers: list[int]) -> None:
        """These segments' batches are garbage in the loader."""
        for number in numbers:
            self._back(self._lent.pop(number))

    def _back(self, segment: Segment) -> None:
        segment.used = 0
        small = segment.size < self._largest
        if small or len(self._free) >= self._keep or not segment.untouched():
            self._dropped.append(segment.number)
        else:
            self._free.append(segment)

    def _take(self, size: int) -> Segment:
        wanted = size if self._current else max(size, self._largest)
        for i, segment in enumerate(self._free):
            if segment.size >= wanted:
                del self._free[i]
                break
        else:
            self._numbers += 1
            segment = Segment(self._numbers, wanted + -wanted % GRAIN)
        self._current.append(segment)
        return segment


class Shared:
    """The loader's side of one worker's segments."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}
        self._held: dict[int, weakref.ref[Array]] = {}
        self._freed: deque[int] = deque()

    def take(self, told: dict[str, Any], fds: list[int]) -> dict[int, Array]:
        """The memory of a batch, by segment: arrays over it hold it, and when they are gone `freed` names it."""
        sizes = {number: size for number, _, size in told["segments"]}
        for number, fd in zip(told["new"], fds, strict=True):
            try:
                self._maps[number] = mmap.mmap(fd, sizes[number], mmap.MAP_SHARED | _POPULATE)
            finally:
                os.close(fd)
        for number in told["dropped"]:
            self._maps.pop(number, None)
        self._settle()
        bases = {}
        for number, used, _ in told["segments"]:
            base = np.frombuffer(self._maps[number], np.uint8)
            if len(self._held) >= HELD:  # what a list of a whole epoch holds need not be shared memory
                base = base[:used].copy()
                self._freed.append(number)
            else:
                freed = self._freed

                def gone(_: Any, number: int = number, freed: deque[int] = freed) -> None:
                    freed.append(number)

                self._held[number] = weakref.ref(base, gone)
            bases[number] = base
        return bases

    def freed(self) -> list[int]:
        """The segments that came free since the last call."""
        found = []
        while self._freed:
            number = self._freed.popleft()
            self._held.pop(number, None)
            found.append(number)
        return found

    def _settle(self) -> None:
        for number in list(self._freed):
            self._held.pop(number, None)
