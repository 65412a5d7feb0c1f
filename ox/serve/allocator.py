"""How the C library's allocator keeps memory that was freed, and how a serving process gets it back to the system.

glibc learns from what is freed: after the first answer of 24 MB it takes blocks of this size from its heaps, which only
shrink from their ends and so never shrink again. Other systems' allocators are left as they are.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import sys
from functools import cache
from typing import Any

from ox.serve.answer_memory import AnswerMemory
from ox.serve.repository.thread import in_thread

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
MAPPED = 4 << 20  # bytes of a block, from which on it is mapped by itself, and unmapped when it is freed
TOP = 16 << 20  # bytes that may lie free at the end of a heap
PEAK = 64 << 20  # bytes of answers, after which it is worth looking through all heaps
CALM_S = 1.0  # without any large answer, before that is done

log = logging.getLogger("ox.serve")


@cache
def _glibc() -> Any:
    """The C library if it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version, library.mallopt, library.malloc_trim  # noqa: B018
    except (OSError, AttributeError):
        return None
    return library


def tune() -> None:
    """Has large blocks given back as soon as they are freed. For a process that does nothing but serve."""
    library = _glibc()
    if library is not None:
        library.mallopt(M_MMAP_THRESHOLD, MAPPED)
        library.mallopt(M_TRIM_THRESHOLD, TOP)


def trim() -> None:
    """Gives the free parts of all heaps back to the system."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


class HeapTrimmer:
    """Trims once after each peak of answers, when all of them have left."""

    def __init__(self, loop: asyncio.AbstractEventLoop, memory: AnswerMemory) -> None:
        self._loop, self._memory = loop, memory
        self._timer: asyncio.TimerHandle | None = None
        self._trimming: asyncio.Future[None] | None = None
        memory.emptied = self._emptied

    def close(self) -> None:
        self._memory.emptied = None
        if self._timer is not None:
            self._timer.cancel()

    def _emptied(self) -> None:
        """In whichever thread freed the last one, and at any time: nothing here may wait for anything."""
        if self._memory.peak >= PEAK:
            try:
                self._loop.call_soon_threadsafe(self._wait)
            except RuntimeError:  # the loop has been closed
                return

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(CALM_S, self._trim)

    def _trim(self) -> None:
        self._timer = None
        if self._memory.held < PEAK:
            self._memory.peak = 0
            self._trimming = asyncio.ensure_future(in_thread(trim, "ox-trim"))
