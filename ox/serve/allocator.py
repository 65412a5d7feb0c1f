"""Settings of the C library's allocator, so that a serving process returns freed memory to the system.

glibc raises its mmap threshold with freed blocks: after the first response of 24 MB it takes such blocks from heaps,
which shrink only from their ends, and so in practice never. Other allocators are not changed.
"""

from __future__ import annotations

import asyncio
import logging

from ox.devices.heap import glibc, trim_heaps
from ox.serve.repository.thread import in_thread
from ox.serve.response_memory import ResponseMemory

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
MMAP_THRESHOLD = 4 << 20  # bytes; larger blocks are mapped separately and unmapped when freed
TRIM_THRESHOLD = 16 << 20  # free bytes at the end of a heap
TRIM_PEAK = 64 << 20  # bytes of responses; after such a peak all heaps are trimmed
TRIM_DELAY_S = 1.0  # seconds without a large response before that

log = logging.getLogger("ox.serve")


def configure_malloc() -> None:
    """Makes glibc return large blocks to the system when they are freed. For processes that only serve."""
    library = glibc()
    if library is not None:
        library.mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)
        library.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)


class HeapTrimmer:
    """Trims the heaps after each peak of response memory, when all responses have been sent."""

    def __init__(self, loop: asyncio.AbstractEventLoop, memory: ResponseMemory) -> None:
        self._loop, self._memory = loop, memory
        self._timer: asyncio.TimerHandle | None = None
        self._trim_task: asyncio.Future[None] | None = None
        memory.on_empty = self._on_empty

    def close(self) -> None:
        self._memory.on_empty = None
        if self._timer is not None:
            self._timer.cancel()

    def _on_empty(self) -> None:
        """Called in any thread and at any time, also during a garbage collection: takes no lock."""
        if self._memory.peak >= TRIM_PEAK:
            try:
                self._loop.call_soon_threadsafe(self._schedule)
            except RuntimeError:  # the loop has been closed
                return

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(TRIM_DELAY_S, self._trim)

    def _trim(self) -> None:
        self._timer = None
        if self._memory.used < TRIM_PEAK:
            self._memory.peak = 0
            self._trim_task = asyncio.ensure_future(in_thread(trim_heaps, "ox-trim"))
