"""Counts of values by size.

Counted by hand on the event loop, because a Prometheus client's own counters take locks that cost more than a small
model; converted to Prometheus's form when it is requested.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np

SECONDS = (
    1e-5,
    2.5e-5,
    5e-5,
    1e-4,
    2.5e-4,
    5e-4,
    1e-3,
    2.5e-3,
    5e-3,
    1e-2,
    2.5e-2,
    5e-2,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Histogram:
    """Counts of values up to each bound, and their sum.

    `observe` only appends, five times for each request: values are sorted into the counts when these are read, and by
    `sort_in`, which the owner calls when `pending` is long.
    """

    __slots__ = ("_counts", "_total", "bounds", "observe", "pending")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.pending = array("d")
        self.observe: Callable[[float], None] = self.pending.append
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def sort_in(self) -> None:
        """Adds the pending values to the counts and to the sum."""
        values = np.sort(np.frombuffer(self.pending))
        del self.pending[:]
        up_to = np.searchsorted(values, self.bounds, side="right")
        each = np.diff(up_to, prepend=0, append=len(values)).tolist()
        self._counts = [count + more for count, more in zip(self._counts, each, strict=True)]
        self._total += float(values.sum())

    @property
    def counts(self) -> list[int]:
        """The values in each bucket, the last of which has no bound."""
        if self.pending:
            self.sort_in()
        return self._counts

    @property
    def total(self) -> float:
        """The sum of all values."""
        if self.pending:
            self.sort_in()
        return self._total

    @property
    def count(self) -> int:
        return sum(self.counts)


def buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """(upper bound, values up to it), as Prometheus wants them."""
    rows, running = [], 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        running += count
        rows.append((bound, float(running)))
    return rows
