"""Time as an argument: whatever waits, expires or measures asks a clock, and a test passes one that it moves itself."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["SYSTEM", "Clock", "Event"]

T = TypeVar("T")


class Clock:
    """The machine's time.

    `now` and `calendar` are attributes, so that a hot path pays for no more than the call: it binds `now` once.

    Attributes:
        now: monotonic seconds; the zero is arbitrary.
        calendar: seconds since 1970 (UTC).
        thread_time: seconds that the processor spent on this thread.
    """

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.perf_counter
        self.calendar: Callable[[], float] = time.time
        self.thread_time: Callable[[], float] = time.thread_time

    def sleep(self, seconds: float) -> None:
        """Blocks this thread for so many seconds."""
        time.sleep(seconds)

    def wait(self, condition: threading.Condition, predicate: Callable[[], T], seconds: float | None = None) -> T:
        """`condition.wait_for` by this clock: the last value of `predicate`, false if the seconds are over. None waits
        for as long as it takes. The caller holds the condition's lock."""
        return condition.wait_for(predicate, seconds)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """An event loop whose timers go by this clock: uvloop's if uvloop is installed, otherwise one of asyncio."""
        try:
            import uvloop
        except ImportError:
            return asyncio.new_event_loop()
        return uvloop.new_event_loop()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """`asyncio.run` on such a loop."""
        with asyncio.Runner(loop_factory=self.new_event_loop) as runner:
            return runner.run(main)


SYSTEM = Clock()


class Event:
    """A `threading.Event` whose `wait` goes by a clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._condition, self._set = clock, threading.Condition(), False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        with self._condition:
            self._set = True
            self._condition.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it was set within so many seconds."""
        with self._condition:
            return self._clock.wait(self._condition, self.is_set, seconds)
