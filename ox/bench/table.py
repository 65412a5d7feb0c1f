"""Prints the result of a load test as a table."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from ox.bench.result import PERCENTILES, Result, Step
from ox.bench.text_figures import TextFigures

WIDEST = 500  # characters of a line
COUNTS = ("correct", "failed")
SERIES = ("first token", "between", "whole")
TEXT = ("requests/s", "tokens/s", *(f"{name} p{percent}" for name in SERIES for percent in (50, 99)), *COUNTS)
LATE = 0.1  # of the median latency: a larger delay of the load generator is reported


def show(result: Result, console: Console) -> None:
    plan = result.plan
    table = Table(
        title=f"{result.model} at {result.url}", title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("target/s" if plan.rates else "clients", justify="right", no_wrap=True)
    for name in TEXT if plan.text else ("requests/s", *(f"p{percent:g}" for percent in PERCENTILES), "max", *COUNTS):
        table.add_column(name, justify="right", no_wrap=True)
    for step in result.steps:
        table.add_row(*(_text_cells if plan.text else _cells)(step))
    kind = "gRPC" if result.url.startswith("grpc") else "JSON" if plan.text or not plan.binary else "binary"
    table.caption = (
        f"{result.sent} · {kind}, {result.request_bytes:,} bytes per request · {plan.seconds:g} s per step · "
        "latencies in ms"
    )
    # rich cuts figures short to fit a line; a terminal that is narrower wraps the lines
    console.width = max(console.width, Measurement.get(console, console.options.update(width=WIDEST), table).maximum)
    console.print(table, soft_wrap=True)
    if plan.rates:
        console.print(
            f"Open loop, {plan.arrivals} arrivals: latency is measured from the scheduled send time "
            "(no coordinated omission).",
            soft_wrap=True,
        )
    else:
        console.print(
            "Closed loop: each client waits for its response, so a stalled server gets fewer requests; see --rate.",
            soft_wrap=True,
        )
    for step in result.steps:
        for line in remarks(step):
            console.print(line, soft_wrap=True, markup=False)


def remarks(step: Step) -> list[str]:
    """Failures of a step, and notes on its measurement."""
    name = f"{step.clients} client{'s' * (step.clients > 1)}" if step.rate is None else f"{step.rate:g}/s"
    lines = []
    for what, failures in (("", step.failures), (" in the warm-up", step.failed_early)):
        for kind, count in sorted(failures.counts.items(), key=lambda pair: -pair[1]):
            example = failures.examples.get(kind)
            lines.append(f"{name}: {count:,} × {kind}{what}" + (f", such as: {example}" if example else ""))
    if step.reconnects:
        lines.append(f"{name}: {step.reconnects:,} connections were reopened")
    if step.late > max(1e-4, LATE * step.percentile(50)):
        lines.append(f"{name}: the load generator sent late, p99 {1e3 * step.late:.2f} ms: try --processes")
    return lines


def _cells(step: Step) -> list[str]:
    some = step.answered > 0
    times = [*(step.percentile(percent) for percent in PERCENTILES), step.histogram.largest]
    return [
        _load(step),
        f"{step.throughput:,.0f}",
        *(_ms(value) if some else "–" for value in times),
        f"{step.answered:,}",
        f"{step.failed:,}",
    ]


def _text_cells(step: Step) -> list[str]:
    figures = step.text or TextFigures()
    series = (figures.first, figures.between, step.histogram)
    return [
        _load(step),
        f"{step.throughput:,.3g}" if step.throughput < 100 else f"{step.throughput:,.0f}",
        f"{figures.tokens / step.seconds:,.0f}",
        *(_ms(each.percentile(percent)) if each.count else "–" for each in series for percent in (50, 99)),
        f"{step.answered:,}",
        f"{step.failed:,}",
    ]


def _load(step: Step) -> str:
    return f"{step.clients}" if step.rate is None else f"{step.rate:,g}"


def _ms(seconds: float) -> str:
    ms = 1e3 * seconds
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"
