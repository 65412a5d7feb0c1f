"""What was measured."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from typing import Any

from ox.bench.histogram import Histogram
from ox.bench.plan import Plan
from ox.bench.recorder import Failures
from ox.bench.text_figures import TextFigures

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


@dataclass
class Step:
    """One load. Latencies are those of right answers; everything else is in `failures`, by kind."""

    clients: int
    rate: float | None  # requests a second that were meant; None in a closed loop
    seconds: float
    histogram: Histogram = field(default_factory=Histogram)
    failures: Failures = field(default_factory=Failures)
    failed_early: Failures = field(default_factory=Failures)
    within: int = 0
    reconnects: int = 0
    late: float = 0.0
    text: TextFigures | None = None  # where texts are generated

    @property
    def throughput(self) -> float:
        """Right answers a second."""
        return self.within / self.seconds

    @property
    def answered(self) -> int:
        return self.histogram.count

    @property
    def failed(self) -> int:
        return sum(self.failures.counts.values())

    @property
    def wrong(self) -> int:
        return sum(count for kind, count in self.failures.counts.items() if kind.startswith("wrong"))

    def percentile(self, percent: float) -> float:
        """Seconds."""
        return self.histogram.percentile(percent)

    def merge(self, share: dict[str, Any]) -> None:
        """Adds what one process measured."""
        self.histogram.merge(Histogram.from_json(share["histogram"]))
        self.failures.merge(Failures(**share["failures"]))
        self.failed_early.merge(Failures(**share["failed_early"]))
        self.within += share["within"]
        self.reconnects += share["reconnects"]
        self.late = max(self.late, share["late"])
        if share.get("text") is not None:
            self.text = self.text or TextFigures()
            self.text.merge(share["text"])

    def to_json(self) -> dict[str, Any]:
        some = self.answered > 0
        return {
            "clients": self.clients,
            "rate": self.rate,
            "seconds": self.seconds,
            "throughput": self.throughput,
            "answered": self.answered,
            "failed": self.failed,
            "latency_ms": {
                **{f"p{percent:g}": 1e3 * self.percentile(percent) if some else None for percent in PERCENTILES},
                "mean": 1e3 * self.histogram.mean if some else None,
                "max": 1e3 * self.histogram.largest if some else None,
            },
            "failures": self.failures.counts,
            "examples": self.failures.examples,
            "failures_in_warmup": self.failed_early.counts,
            "reconnects": self.reconnects,
            "generator_late_ms_p99": 1e3 * self.late,
            **({} if self.text is None else self.text.to_json(self.seconds)),
        }


@dataclass
class Result:
    url: str
    model: str
    sent: str  # what a request holds, for people
    request_bytes: int
    plan: Plan
    steps: list[Step] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Something was answered, and nothing wrongly."""
        return any(step.answered for step in self.steps) and not any(step.wrong for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "model": self.model,
            "sent": self.sent,
            "request_bytes": self.request_bytes,
            "python": platform.python_version(),
            "plan": asdict(self.plan),
            "steps": [step.to_json() for step in self.steps],
        }
