"""Runs a load in its own thread: reports its progress, and abandons it at its time limit or when it is cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ox.clock import Event
from ox.serve.runtime.abandoned_threads import abandon
from ox.serve.runtime.load_control import LoadControl

T = TypeVar("T")

AT_ONCE = 2  # loads that go on at the same time
SLOW_S = 3.0  # after this time another load may start in parallel
REPORT_S = 1.0  # after this time progress is reported; then after twice as long, and so on
GRACE_S = 2.0  # between the word that it has to end and its end


class Watchdog(Generic[T]):
    """Watches loads.

    Args:
        say: called with the progress of a long load, from any thread.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._free_slots = AT_ONCE
        self._condition = threading.Condition()  # a slot is free, or a load that waits for one has been ended

    def run(self, call: Callable[[], T], control: LoadControl) -> T:
        """What `call` gives. Blocks, but never for longer than the limit and `GRACE_S`.

        Raises:
            LoadError: it took too long. Exception: why it was ended; or what `call` raises.
        """
        self._acquire_slot(control)
        has_slot = True
        control.begin()
        attempt = _Attempt(call, control)
        try:
            report_s = REPORT_S
            while not attempt.finished.is_set():
                seconds = control.seconds
                if control.limit_s is not None and seconds >= control.limit_s:
                    control.end(control.late())
                if control.error is not None:
                    abandon(attempt.thread)
                    attempt.finished.wait(GRACE_S)
                    raise control.error
                if seconds >= report_s:
                    report_s *= 2
                    self._say(f"loading {control.what}: {control.progress()}")
                if has_slot and seconds >= SLOW_S:
                    has_slot = False
                    self._release_slot()
                following = min(report_s, control.limit_s or report_s, SLOW_S if has_slot else report_s)
                control.ended_event.wait(following - seconds)
            return attempt.result()
        finally:
            if has_slot:
                self._release_slot()

    def _acquire_slot(self, control: LoadControl) -> None:
        control.add_stop(self._wake)
        try:
            with self._condition:
                self._condition.wait_for(lambda: self._free_slots or control.error is not None)
                control.check()
                self._free_slots -= 1
        finally:
            control.forget(self._wake)

    def _release_slot(self) -> None:
        with self._condition:
            self._free_slots += 1
            self._condition.notify_all()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()


class _Attempt(Generic[T]):
    def __init__(self, call: Callable[[], T], control: LoadControl) -> None:
        self._call, self._control = call, control
        self._values: list[T] = []
        self._error: BaseException | None = None
        self.finished = Event(control.clock)
        self.thread = threading.Thread(target=self._work, name=f"ox-load {control.what}", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            self._values.append(self._call())
        except BaseException as error:
            self._error = error
        self.finished.set()
        self._control.ended_event.set()

    def result(self) -> T:
        self._control.check()
        if self._error is not None:
            raise self._error
        return self._values.pop()
