"""A clock that wakes the event loop on time: loops round their timers to a millisecond, which is a server's latency."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from time import perf_counter

MONOTONIC = 1  # Linux's number of the clock that perf_counter reads
NONBLOCK = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
ABSOLUTE = 1


class _Spec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("again_s", "again_ns", "first_s", "first_ns")]


class Ticker:
    """Calls `tick` at a given time; to about 0.05 ms on Linux, to the loop's millisecond elsewhere."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self.loop, self.tick = asyncio.get_running_loop(), tick
        self.file = -1
        self.handle: asyncio.TimerHandle | None = None
        if sys.platform == "linux":
            self.libc = ctypes.CDLL(None, use_errno=True)
            self.file = self.libc.timerfd_create(MONOTONIC, NONBLOCK)
        if self.file >= 0:
            self.loop.add_reader(self.file, self._fired)

    def at(self, time: float) -> None:
        """Once, at this perf_counter time; a time that has passed is now."""
        if self.file < 0:
            self.handle = self.loop.call_later(max(0.0, time - perf_counter()), self.tick)
            return
        whole = int(time)
        spec = _Spec(0, 0, whole, max(1, int((time - whole) * 1e9)))
        self.libc.timerfd_settime(self.file, ABSOLUTE, ctypes.byref(spec), None)

    def close(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
        if self.file >= 0:
            self.loop.remove_reader(self.file)
            os.close(self.file)
            self.file = -1

    def _fired(self) -> None:
        try:
            os.read(self.file, 8)
        except BlockingIOError:  # set anew between the wake-up and here
            return
        self.tick()
