"""What happened in one step: every request that was meant to be sent while it was measured ends up here, once."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from ox.bench.histogram import Histogram

FOLD = 65_536


@dataclass
class Failures:
    """Failed requests by kind, with an example of each."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, example: str = "", count: int = 1) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + count
        if example:
            self.examples.setdefault(kind, example[:300])

    def merge(self, other: Failures) -> None:
        for kind, count in other.counts.items():
            self.add(kind, other.examples.get(kind, ""), count)


class Recorder:
    """Latencies of correct responses, and failures by kind. Times are perf_counter's seconds."""

    def __init__(self, start: float, stop: float) -> None:
        self.start, self.stop = start, stop
        self.times = array("d")
        self.histogram = Histogram()
        self.late = array("d")  # how long after its time a request left although a connection was free
        self.failures = Failures()
        self.failed_early = Failures()  # the same before the measurement: shown, not counted
        self.within = 0  # right answers that came while it was measured, whenever their requests left
        self.reconnects = 0

    def begin(self, now: float, warmup: float, seconds: float) -> None:
        """From `now` on it is known what counts. Without a warm-up, what failed while connections were opened does."""
        self.start, self.stop = now + warmup, now + warmup + seconds
        if not warmup:
            self.failures.merge(self.failed_early)
            self.failed_early = Failures()

    def right(self, meant: float, now: float) -> None:
        if self.start <= now < self.stop:
            self.within += 1
        if self.start <= meant < self.stop:  # later ones end sequences
            self.times.append(now - meant)
            if len(self.times) >= FOLD:
                self.fold()

    def failed(self, meant: float, kind: str, example: str = "") -> None:
        (self.failures if meant >= self.start else self.failed_early).add(kind, example)

    def fold(self) -> None:
        self.histogram.add(self.times)
        self.times = array("d")
