"""One timer for all deadlines of a batcher, by the event loop's clock, which nobody can set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from ox.serve.batching.job import Job

FINEST_S = 0.002  # whoever sends a thousand different timeouts makes the queue be looked through only so often


def late(now: float) -> Callable[[Job], bool]:
    """Whether a job need not be run any more: its client has left, or it is past its deadline."""

    def stale(job: Job) -> bool:
        return job.abandoned or (job.deadline is not None and job.deadline <= now)

    return stale


def _nobody(now: float) -> None:
    return None


class Deadlines:
    """Calls `overdue` with the time when a deadline that it was told of has passed; it returns the next one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, overdue: Callable[[float], float | None]) -> None:
        self._loop, self._overdue = loop, overdue
        self._timer: asyncio.TimerHandle | None = None
        self._at = float("inf")

    def watch(self, deadline: float | None) -> None:
        if deadline is not None and deadline < self._at - FINEST_S:
            self._arm(deadline, perf_counter())

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Lets go of whom it calls: who refers to one another is freed only when a collection comes by."""
        self.cancel()
        self._overdue = _nobody

    def _arm(self, deadline: float, now: float) -> None:
        self.cancel()
        wait = max(deadline - now, FINEST_S)
        self._at = now + wait
        self._timer = self._loop.call_later(wait, self._fire)

    def _fire(self) -> None:
        now = perf_counter()
        self._timer, self._at = None, float("inf")
        following = self._overdue(now)
        if following is not None:
            self.watch(following)
