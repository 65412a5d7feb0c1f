"""What a timer measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, floor, log10
from statistics import NormalDist
from typing import Any

import numpy as np


@dataclass(frozen=True)
class TaskSpec:
    """What is measured. `torch.utils.benchmark.TaskSpec`."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label and the sub-label, or the statement."""
        if self.label is None:
            return self.stmt if "\n" not in self.stmt else "stmt:\n" + _indented(self.stmt)
        return self.label + (f": {self.sub_label}" if self.sub_label else "")

    def setup_str(self) -> str:
        if self.setup in ("", "pass"):
            return ""
        return f"setup:\n{_indented(self.setup)}" if "\n" in self.setup else f"setup: {self.setup}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


LOW_CONFIDENCE = 0.1


@dataclass
class Measurement:
    """Seconds of several blocks of runs. `torch.utils.benchmark.Measurement`."""

    number_per_run: int
    raw_times: list[float]  # seconds of each block of `number_per_run` runs
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = field(default=None, repr=False)

    @property
    def times(self) -> list[float]:
        """Seconds of a run, for each block."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        return float(np.median(self.times))

    @property
    def mean(self) -> float:
        return float(np.mean(self.times))

    @property
    def iqr(self) -> float:
        """Between the first and the third quartile, in seconds."""
        low, high = np.quantile(self.times, [0.25, 0.75])
        return float(high - low)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median to believe: those that the spread leaves, at least one and as a rule two."""
        # the standard error of a median, from the quartiles of a normal distribution
        normal = NormalDist()
        spread = self.iqr / (2 * normal.inv_cdf(0.75)) * 1.25 / max(len(self.times), 1) ** 0.5
        wide = 2 * normal.inv_cdf(0.975) * spread
        relative = wide / self.median if self.median else 1.0
        return min(max(1, floor(-log10(relative)) if relative > 0 else 5), 5) if len(self.times) > 1 else 3

    @property
    def has_warnings(self) -> bool:
        """Whether the blocks differ by more than a tenth."""
        return not self.meets_confidence()

    def meets_confidence(self, threshold: float = LOW_CONFIDENCE) -> bool:
        return bool(self.iqr / self.median < threshold) if self.median else True

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def env(self) -> str:
        return "Unspecified env" if self.task_spec.env is None else self.task_spec.env

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    @property
    def label(self) -> str | None:
        return self.task_spec.label

    @property
    def description(self) -> str | None:
        return self.task_spec.description

    @property
    def num_threads(self) -> int:
        return self.task_spec.num_threads

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Those of one task, as often as it was measured, as one each; runs of different numbers are divided out."""
        grouped: dict[TaskSpec, list[Measurement]] = {}
        for m in measurements:
            grouped.setdefault(m.task_spec, []).append(m)
        return [Measurement(1, [t for m in group for t in m.times], spec) for spec, group in grouped.items()]

    def __repr__(self) -> str:
        spec = self.task_spec
        lines = [f"<{type(self).__name__} of {self.title}>", *(s for s in (spec.description, spec.setup_str()) if s)]
        unit, scale = select_unit(self.median)
        if len(self.times) == 1:
            lines.append(f"  {self.median / scale:.2f} {unit}")
        else:
            lines.append(f"  Median: {self.median / scale:.2f} {unit}")
            low, high = (q / scale for q in np.quantile(self.times, [0.25, 0.75]))
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
        count, threads = len(self.times), self.num_threads
        runs = f"{self.number_per_run} run{'s' if self.number_per_run != 1 else ''} per measurement"
        lines.append(
            f"  {count} measurement{'s' if count > 1 else ''}, {runs}, {threads} thread{'s' if threads > 1 else ''}"
        )
        if self.has_warnings and count > 1:
            lines.append(f"  WARNING: the spread is {100 * self.iqr / self.median:.1f}% of the median")
        return "\n".join(lines)


def select_unit(t: float) -> tuple[str, float]:
    """A unit in which a number of seconds is easy to read, and its size in seconds."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if t >= scale:
            return unit, scale
    return "ns", 1e-9


def trim_sigfig(x: float, n: int) -> float:
    """`x` to `n` significant figures: 3.14159 to 2 is 3.1."""
    if not x:
        return x
    scale = 10.0 ** (ceil(log10(abs(x))) - n)
    return float(round(x / scale) * scale)
