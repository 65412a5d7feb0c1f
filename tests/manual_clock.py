"""A clock that a test moves: nothing waits for real time, and nothing expires before the test says so."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ox.clock import Clock

T = TypeVar("T")
START_S = 1000.0
CALENDAR_S = 1_700_000_000.0
HANGS_S = 120.0


@dataclass(eq=False)
class Wait:
    """What a thread waits for, and until when."""

    condition: threading.Condition
    predicate: Callable[[], object]
    end: float

    def goes_on(self, now: float) -> bool:
        """False for a thread that has yet to wake up."""
        with self.condition:
            return now < self.end and not self.predicate()


class ManualClock(Clock):
    """Time stands still until `advance`. Safe for threads.

    `with server, clock:` is for a server that goes by it: where the block ends, also by an error, its loops begin to
    jump, so that the server can stop.

    Args:
        now: seconds at the start.
        calendar: seconds since 1970 at the start.
        jumps: whether its event loops move the time themselves, to their next timer, once nothing is ready. That is for
            tests without threads: what a thread still works on is not seen.
    """

    def __init__(self, now: float = START_S, calendar: float = CALENDAR_S, *, jumps: bool = False) -> None:
        self._now, self.jumps = now, jumps
        self._lock = threading.Condition()
        self._waits: list[Wait] = []
        self._loops: set[ManualLoop] = set()
        self.now = lambda: self._now
        self.calendar = lambda: calendar + self._now - now
        self.thread_time = lambda: self._now

    def __enter__(self) -> ManualClock:
        return self

    def __exit__(self, *_: object) -> None:
        self.jumps = True
        self.advance(0)

    def advance(self, seconds: float) -> None:
        """Moves the time, then wakes all that wait by it."""
        with self._lock:
            self._now = round(self._now + seconds, 9)  # so that steps add up to what a deadline is
            conditions, loops = {wait.condition for wait in self._waits}, list(self._loops)
        for condition in conditions:
            with condition:
                condition.notify_all()
        for loop in loops:
            loop.wake()

    def until_waiting(self, threads: int = 1) -> None:
        """Returns when so many threads wait by this clock: before that, moving the time would not be in their way.

        The timers of its event loops do not count."""
        while True:
            with self._lock:
                waits = list(self._waits)
            waiting = sum(wait.goes_on(self._now) for wait in waits)
            if waiting >= threads:
                return
            with self._lock:
                changed = self._lock.wait_for(lambda: self._waits != waits, HANGS_S)  # noqa: B023
            assert changed, f"after {HANGS_S:g} seconds {waiting} threads wait by this clock, not {threads}"

    def sleep(self, seconds: float) -> None:
        condition = threading.Condition()
        with condition:
            self.wait(condition, lambda: False, seconds)

    def wait(self, condition: threading.Condition, predicate: Callable[[], T], seconds: float | None = None) -> T:
        if seconds is None:
            return condition.wait_for(predicate)
        end = round(self._now + seconds, 9)  # as `advance` rounds
        entry = Wait(condition, predicate, end)
        with self._lock:
            self._waits.append(entry)
            self._lock.notify_all()
        try:
            # The caller holds the condition's lock, which `advance` takes after it has moved the time: none is missed.
            while not (value := predicate()) and self._now < end:
                condition.wait()
            return value
        finally:
            with self._lock:
                self._waits.remove(entry)
                self._lock.notify_all()

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return ManualLoop(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """`asyncio.run` by this clock. What hangs is cancelled after `HANGS_S` of real time, where it stands; that
        is an AssertionError."""

        async def main() -> T:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            hangs = f"it did not end in {HANGS_S:g} seconds"
            timer = threading.Timer(HANGS_S, loop.call_soon_threadsafe, (task.cancel, hangs))
            timer.daemon = True
            timer.start()
            try:
                return await work
            except asyncio.CancelledError as error:
                if error.args == (hangs,):
                    raise AssertionError(hangs) from error
                raise
            finally:
                timer.cancel()

        return super().run(main())


class ManualLoop(asyncio.SelectorEventLoop):
    """Its timers go by a `ManualClock`."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(ManualSelector(clock))
        self.clock = clock
        clock._loops.add(self)

    def time(self) -> float:
        return self.clock.now()

    def wake(self) -> None:
        """Has it look at the time. From any thread."""
        try:
            self.call_soon_threadsafe(lambda: None)
        except RuntimeError:  # it has just been closed
            return

    def close(self) -> None:
        self.clock._loops.discard(self)
        super().close()


class ManualSelector(selectors.DefaultSelector):
    """Waits for files, and never for a timer."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if timeout < 1e-9:  # what rounding left of a timer that is due
            with self._clock._lock:
                self._clock._now += timeout
            return super().select(0)
        if not self._clock.jumps:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self._clock.advance(timeout)
        return ready


async def pass_time(seconds: float) -> None:
    """Has so much time pass on a `ManualLoop`."""
    assert isinstance(asyncio.get_running_loop(), ManualLoop)
    await asyncio.sleep(seconds)  # noqa: TID251  # by its clock


def run_jumping(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a loop whose time jumps to the next timer when nothing is ready."""
    return ManualClock(jumps=True).run(work)
