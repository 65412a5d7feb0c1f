"""Shared memory of a worker and the loader: the worker writes a batch, and the loader reads it in place.

A segment is an anonymous file (`memfd`). Its descriptor is sent to the loader, and both map it. The system frees it
when the last process with it ends. The worker may write to a segment until its batch is sent; then it belongs to the
loader until the last array of the batch is garbage collected.
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

from ox.data.loading.serialize import Array, Blob, dtype_name

MAX_INLINE = 1 << 14  # arrays up to this many bytes are sent inside the message
SEGMENT_ALIGNMENT = 1 << 16  # segments are multiples of this
MAX_SHARED_BATCHES = 256  # batches that a program may keep in shared memory; further batches are copied
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)


def make_file(size: int) -> int:
    """A file descriptor of `size` bytes of shared memory."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("ox-batch", os.MFD_CLOEXEC)
    else:  # macOS
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


class Segment:
    """A segment, as the worker uses it."""

    __slots__ = ("array", "fd", "number", "size", "used")

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size, self.used = number, size, 0
        self.fd = make_file(size)
        self.array: Array = np.frombuffer(mmap.mmap(self.fd, size), np.uint8)

    def is_unused(self) -> bool:
        """Whether no array of the dataset or of a collate_fn still refers to it."""
        return sys.getrefcount(self.array) == 2  # the attribute, and the argument of getrefcount


class Arena:
    """The allocator of a worker. `empty` is `np.empty` in shared memory."""

    def __init__(self, keep: int) -> None:
        self._keep = keep  # the most free segments to keep
        self._free: list[Segment] = []
        self._in_loader: dict[int, Segment] = {}
        self._current: list[Segment] = []
        self._dropped: list[int] = []
        self._largest = 0  # bytes of the largest batch
        self._numbers = 0
        self._thread = get_ident()
        self.blob = Blob()

    def empty(self, shape: Any, dtype: Any) -> Array:
        """An uninitialized array for the current batch."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size <= MAX_INLINE or get_ident() != self._thread:  # a dataset may use its own threads
            return np.empty(shape, dtype)
        segment = self._current[-1] if self._current else None
        if segment is None or segment.size - segment.used < size:
            segment = self._allocate(size)
        start = segment.used
        segment.used = start + size + -size % 64
        # sliced first, so that the array refers to segment.array: `is_unused` counts these references
        own: Array = segment.array[start : start + size].view(dtype).reshape(shape)
        return own

    def put(self, array: Array) -> list[Any]:
        """A reference to an array; copies it into shared memory unless `empty` allocated it."""
        if array.nbytes <= MAX_INLINE:
            return self.blob.put(array)
        segment = next((s for s in self._current if array.base is s.array), None)
        if segment is None or not array.flags.c_contiguous:
            own = self.empty(array.shape, array.dtype)
            np.copyto(own, array)
            return self.put(own)
        offset = array.__array_interface__["data"][0] - segment.array.__array_interface__["data"][0]
        return [segment.number, offset, dtype_name(array.dtype), list(array.shape)]

    def hand_over(self) -> tuple[dict[str, Any], Blob, list[int]]:
        """Ends the batch. Returns the description of its segments for the message, the inline bytes, and the file
        descriptors of new segments, which the caller closes after sending them."""
        used = [[s.number, min(s.used, s.size), s.size] for s in self._current]
        self._largest = max(self._largest, sum(s.used for s in self._current))
        fds = []
        for segment in self._current:
            if segment.fd >= 0:
                fds.append(segment.fd)
            self._in_loader[segment.number] = segment
        new = [s.number for s in self._current if s.fd >= 0]
        for segment in self._current:
            segment.fd = -1
        segments = {"segments": used, "new": new, "dropped": self._dropped, "fds": len(fds)}
        blob, self._current, self._dropped, self.blob = self.blob, [], [], Blob()
        return segments, blob, fds

    def discard(self) -> None:
        """Discards the current batch, after an error."""
        for segment in self._current:
            if segment.fd >= 0:  # the loader does not know it
                os.close(segment.fd)
            else:
                self._recycle(segment)
        self._current, self.blob = [], Blob()

    def release(self, numbers: list[int]) -> None:
        """Takes back segments whose batches were garbage collected in the loader."""
        for number in numbers:
            self._recycle(self._in_loader.pop(number))

    def _recycle(self, segment: Segment) -> None:
        segment.used = 0
        small = segment.size < self._largest
        if small or len(self._free) >= self._keep or not segment.is_unused():
            self._dropped.append(segment.number)
        else:
            self._free.append(segment)

    def _allocate(self, size: int) -> Segment:
        wanted = size if self._current else max(size, self._largest)
        for i, segment in enumerate(self._free):
            if segment.size >= wanted:
                del self._free[i]
                break
        else:
            self._numbers += 1
            segment = Segment(self._numbers, wanted + -wanted % SEGMENT_ALIGNMENT)
        self._current.append(segment)
        return segment


class SharedBatches:
    """The segments of one worker, as the loader uses them."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}
        self._in_use: dict[int, weakref.ref[Array]] = {}
        self._freed: deque[int] = deque()

    def map(self, segments: dict[str, Any], fds: list[int]) -> dict[int, Array]:
        """Maps the memory of a batch, by segment number. `freed` returns the number when no array refers to it any
        more."""
        sizes = {number: size for number, _, size in segments["segments"]}
        for number, fd in zip(segments["new"], fds, strict=True):
            try:
                self._maps[number] = mmap.mmap(fd, sizes[number], mmap.MAP_SHARED | _POPULATE)
            finally:
                os.close(fd)
        for number in segments["dropped"]:
            self._maps.pop(number, None)
        self._forget_freed()
        bases = {}
        for number, used, _ in segments["segments"]:
            base = np.frombuffer(self._maps[number], np.uint8)
            # the program keeps many batches, such as a list of an epoch: copy this one
            if len(self._in_use) >= MAX_SHARED_BATCHES:
                base = base[:used].copy()
                self._freed.append(number)
            else:
                freed = self._freed

                def gone(_: Any, number: int = number, freed: deque[int] = freed) -> None:
                    freed.append(number)

                self._in_use[number] = weakref.ref(base, gone)
            bases[number] = base
        return bases

    def freed(self) -> list[int]:
        """The segments that became free since the last call."""
        found = []
        while self._freed:
            number = self._freed.popleft()
            self._in_use.pop(number, None)
            found.append(number)
        return found

    def _forget_freed(self) -> None:
        for number in list(self._freed):
            self._in_use.pop(number, None)
