"""The chart of a load test: latency by percentile for each step, and throughput and latency over the steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ox.bench.result import Result, Step
from ox.errors import ArgumentError, WriteError

KINDS = (".png", ".svg", ".pdf")
TICKS = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99)


def check(path: Path) -> None:
    """Raises ArgumentError for an unknown file type; called before the load test."""
    if path.suffix.lower() not in KINDS:
        raise ArgumentError("unknown file type for a chart", expected=", ".join(KINDS), got=str(path))


def draw(result: Result, path: Path) -> None:
    """Writes the chart.

    Raises:
        ArgumentError: the file's extension is no image format.
        WriteError: the file cannot be written.
    """
    check(path)
    from matplotlib.figure import Figure
    from matplotlib.ticker import FormatStrFormatter

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = [step for step in result.steps if step.answered]
    opened = bool(result.plan.rates)
    colours = [f"C{number % 10}" for number in range(len(steps))]
    for step, colour in zip(steps, colours, strict=True):
        name = f"{step.rate:,g} requests/s" if opened else f"{step.clients} client{'s' * (step.clients > 1)}"
        percents = _percents(step)
        left.plot([_place(p) for p in percents], [1e3 * step.percentile(p) for p in percents], color=colour, label=name)
    left.set_xticks([_place(p) for p in TICKS], [f"{p:g}" for p in TICKS])
    left.set_yscale("log")
    left.set_xlabel("percentile")
    left.set_ylabel("latency, ms")
    left.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    left.grid(True, which="major", alpha=0.3)
    if steps:
        left.legend(fontsize="small")
    where = [step.rate or 0.0 if opened else float(step.clients) for step in steps]
    right.plot(where, [step.throughput for step in steps], "o-", color="black", label="requests/s")
    right.set_ylabel("requests/s")
    right.set_ylim(0, 1.15 * max([step.throughput for step in steps], default=1.0) or 1.0)
    right.set_xlabel("target requests/s" if opened else "clients")
    right.grid(True, alpha=0.3)
    times = right.twinx()
    for percent, mark, colour in ((50.0, "v", "tab:purple"), (99.0, "^", "tab:brown")):
        values = [1e3 * step.percentile(percent) for step in steps]
        times.plot(where, values, marker=mark, color=colour, linestyle="--", label=f"p{percent:g}, ms")
    times.set_yscale("log")
    times.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    times.set_ylabel("latency, ms")
    if steps:
        handles = [*right.get_lines(), *times.get_lines()]
        times.legend(handles=handles, fontsize="small", loc="lower right")
    if len(steps) > 1 and max(where) > 4 * min(where):
        right.set_xscale("log", base=2)
    right.set_xticks(where, [f"{value:,g}" for value in where])
    figure.suptitle(f"{result.model} at {result.url}: {result.sent}", fontsize="medium")
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        hint = "a file in a folder that exists and can be written"
        raise WriteError(f"{path} cannot be written", got=error.strerror or str(error), hint=hint) from None


def _place(percent: float) -> float:
    """Logarithmic axis with equal distances between 90, 99 and 99.9."""
    return float(-np.log10(1 - percent / 100))


def _percents(step: Step) -> list[float]:
    """As far into the tail as there are answers to speak of."""
    most = -np.log10(1 / max(2, step.answered))
    return [float(100 * (1 - 10**-place)) for place in np.linspace(0, min(most, 5.0), 200)]
