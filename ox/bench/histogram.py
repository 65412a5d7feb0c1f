"""Latencies without bound in number: a histogram whose buckets grow by 0.2 %, so a percentile is right to 0.1 %."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

LEAST = 1e-6  # seconds; nothing over a socket is faster
GROWTH = 1.002
BUCKETS = 11_000  # up to an hour


class Histogram:
    """Counts by bucket, and the extremes exactly."""

    def __init__(self, counts: npt.NDArray[np.int64] | None = None, total: float = 0.0, largest: float = 0.0) -> None:
        self.counts = np.zeros(BUCKETS, np.int64) if counts is None else counts
        self.total, self.largest = total, largest

    def add(self, seconds: array[float]) -> None:
        if not seconds:
            return
        values = np.frombuffer(seconds, np.float64)
        places = np.log(np.maximum(values, LEAST) / LEAST) / np.log(GROWTH)
        self.counts += np.bincount(np.minimum(places.astype(np.int64), BUCKETS - 1), minlength=BUCKETS)
        self.total += float(values.sum())
        self.largest = max(self.largest, float(values.max()))

    def merge(self, other: Histogram) -> None:
        self.counts = self.counts + other.counts
        self.total += other.total
        self.largest = max(self.largest, other.largest)

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else float("nan")

    def percentile(self, percent: float) -> float:
        """Seconds within which `percent` of the answers came; NaN without any."""
        count = self.count
        if not count:
            return float("nan")
        rank = min(count, max(1, int(np.ceil(count * percent / 100))))
        bucket = int(np.searchsorted(np.cumsum(self.counts), rank))
        return min(self.largest, float(LEAST * GROWTH ** (bucket + 0.5)))

    def to_json(self) -> dict[str, object]:
        """Only the buckets that hold something."""
        places = np.flatnonzero(self.counts)
        filled = [[int(place), int(self.counts[place])] for place in places]
        return {"filled": filled, "total": self.total, "largest": self.largest}

    @classmethod
    def from_json(cls, entry: dict[str, object]) -> Histogram:
        made = cls(total=float(entry["total"]), largest=float(entry["largest"]))  # type: ignore[arg-type]
        for place, count in entry["filled"]:  # type: ignore[attr-defined]
            made.counts[place] = count
        return made
