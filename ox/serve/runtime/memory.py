"""The memory that all runs of this process may take together: the limit, its error, and how memory is returned."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import cache
from types import ModuleType

from ox.clock import Clock, Event
from ox.devices.machine import available_memory
from ox.devices.onnxruntime.arena import Arena, current_arena, memory_error, shared_arena
from ox.errors import ServeError
from ox.serve.runtime.runtime_error import failed_operator

MIB = 1 << 20
SHARE = 2  # the part of what is available that runs may take by default; the rest is for weights and bodies
MIN_LIMIT = 256 * MIB
KEPT = 16 * MIB  # so little stays for the next run
TICK_S = 1.0
MAX_PAUSE_S = 32  # ticks between two attempts to give back what is used again and again
MOSTLY = 0.75  # of the limit: a run that fails beside others that hold less than the rest would fail alone as well
# ONNX Runtime's messages when memory cannot be allocated.
OTHERS = re.compile(
    r"Failed to allocate memory|bad_alloc|would require more than|would overflow|exceeds the supported range"
    r"|Integer overflow|storage size overflowed|larger than max_size|length_error|array is too big"
)


@cache
def default_limit() -> int:
    """Half of the memory that is available when the first model is loaded, in bytes."""
    return max(MIN_LIMIT, available_memory() // SHARE)


class RunMemory:
    """What runs allocate from.

    Args:
        runtime: the module `onnxruntime`.
        limit: bytes that all runs of the process may hold at once; 0 for half of what is available.
    """

    def __init__(self, runtime: ModuleType, limit: int = 0) -> None:
        self.arena: Arena = shared_arena(runtime, limit or default_limit())
        self.limit = self.arena.limit

    def is_nearly_full(self) -> bool:
        """Whether so much of the memory is held that runs have less than half of it, or its limit holds no more."""
        self.arena.shrink()
        return not 0 < self.arena.bytes_allocated() <= self.limit // 2

    def refusal(self, error: Exception) -> ServeError | None:
        """The error for clients if a run failed for lack of memory, else None; releases unused memory.

        413 if the run wants more than there is for all, 503 if others have it.
        """
        known = memory_error(error)
        if known is None and not OTHERS.search(str(error)):
            return None
        self.arena.shrink()
        expected = f"at most {self.limit // MIB:,} MiB for all runs together (--limit memory)"
        operator = failed_operator(error)
        got = (f"{max(1, known[1] // MIB):,} MiB more" if known else "more") + (f" for {operator}" if operator else "")
        free = self.limit - self.arena.bytes_allocated()
        if known and known[1] <= self.limit and free < MOSTLY * self.limit:
            what = "the memory for runs is taken by other requests"
            return ServeError(what, status=503, expected=expected, got=got, hint="again in a moment")
        what = "this request needs more memory than a run may take"
        return ServeError(what, status=413, expected=expected, got=got, hint="a smaller request, or a higher limit")


def bytes_allocated() -> int:
    """Bytes that the arena of this process holds, in use or not."""
    arena = current_arena()
    return 0 if arena is None else arena.bytes_allocated()


def shrink() -> None:
    """Returns unused memory to the system."""
    arena = current_arena()
    if arena is not None:
        arena.shrink()


class Trimmer:
    """Returns the memory of a peak to the system: a thread that checks once a second.

    Memory that is allocated again at once is needed by the work: the pause between two trims then doubles.

    Args:
        bytes_allocated: returns the bytes that are held, in use or not.
        shrink: returns unused memory.
        clock: whose seconds they are.
    """

    def __init__(self, bytes_allocated: Callable[[], int], shrink: Callable[[], None], clock: Clock) -> None:
        self._bytes_allocated, self._shrink = bytes_allocated, shrink
        self._pause = self._wait = 1
        self._last = 0
        self._stopping = Event(clock)
        self._thread = threading.Thread(target=self._run, name="ox-memory", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def tick(self) -> None:
        """One check."""
        bytes_allocated = self._bytes_allocated()
        if bytes_allocated <= KEPT:
            self._pause = self._wait = 1
            self._last = 0
            return
        self._wait -= 1
        if self._wait > 0:
            return
        self._pause = min(2 * self._pause, MAX_PAUSE_S) if 2 * bytes_allocated > self._last > 0 else 1
        self._last, self._wait = bytes_allocated, self._pause
        self._shrink()

    def _run(self) -> None:
        while not self._stopping.wait(TICK_S):
            self.tick()
