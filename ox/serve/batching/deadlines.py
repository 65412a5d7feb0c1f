"""One timer for all deadlines of a batcher."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ox.clock import Clock
from ox.serve.batching.job import Job

RESOLUTION_S = 0.002  # limits how often many different timeouts make the queue be scanned


def late(now: float) -> Callable[[Job], bool]:
    """Whether a job is stale: its client has disconnected, or its deadline has passed."""

    def stale(job: Job) -> bool:
        return job.abandoned or (job.deadline is not None and job.deadline <= now)

    return stale


def _no_callback(now: float) -> None:
    return None


class Deadlines:
    """Calls `overdue` with the current time when a watched deadline has passed; it returns the next deadline."""

    def __init__(self, loop: asyncio.AbstractEventLoop, overdue: Callable[[float], float | None], clock: Clock) -> None:
        self._loop, self._overdue, self._now = loop, overdue, clock.now
        self._timer: asyncio.TimerHandle | None = None
        self._at = float("inf")

    def watch(self, deadline: float | None) -> None:
        if deadline is not None and deadline < self._at - RESOLUTION_S:
            self._arm(deadline, self._now())

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Lets go of whom it calls: who refers to one another is freed only when a collection comes by."""
        self.cancel()
        self._overdue = _no_callback

    def _arm(self, deadline: float, now: float) -> None:
        self.cancel()
        wait = max(deadline - now, RESOLUTION_S)
        self._at = now + wait
        self._timer = self._loop.call_later(wait, self._fire)

    def _fire(self) -> None:
        now = self._now()
        self._timer, self._at = None, float("inf")
        following = self._overdue(now)
        if following is not None:
            self.watch(following)
