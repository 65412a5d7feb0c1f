"""What a person sees of a result: the table with its remarks, the chart."""

from __future__ import annotations

import io
from array import array
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from ox.bench import Plan, Result, Step
from ox.bench.chart import draw
from ox.bench.table import show
from ox.errors import ArgumentError, WriteError


def result(rate: float | None = None) -> Result:
    plan = Plan(rates=(rate,)) if rate else Plan(concurrency=(1, 8))
    steps = [Step(8, rate, 2.0)] if rate else [Step(1, None, 2.0), Step(8, None, 2.0)]
    for step in steps:
        step.histogram.add(array("d", [0.001] * 98 + [0.5, 2.0]))
        step.within = 100
    return Result("http://h:8000", "m", "x FP32 [1, 2]", 99, plan, steps)


def text(of: Result) -> str:
    out = io.StringIO()
    show(of, Console(file=out, width=100))
    return out.getvalue()


def test_table() -> None:
    shown = text(result())
    assert "Closed loop" in shown and "m at http://h:8000" in shown
    row = next(line.split() for line in shown.splitlines() if line.split()[:1] == ["8"])
    assert row == ["8", "50", "1", "1", "500", "2,000", "2,000", "100", "0"]
    assert "coordinated omission" in text(result(rate=100.0))


def test_nothing_that_failed_is_hidden() -> None:
    made = result()
    made.steps[0].failures.add("HTTP 503", "the [queue] is full", 7)
    made.steps[1].failed_early.add("timeout", "", 2)
    made.steps[1].reconnects = 3
    made.steps[1].late = 0.01
    shown = text(made)
    assert "1 client: 7 × HTTP 503, such as: the [queue] is full" in shown
    assert "8 clients: 2 × timeout in the warm-up" in shown and "3 connections were reopened" in shown
    assert "sent late, p99 10.00 ms" in shown
    entry = made.to_json()["steps"][0]
    assert entry["failed"] == 7 and entry["failures"] == {"HTTP 503": 7} and entry["latency_ms"]["max"] == 2000
    assert made.good
    made.steps[0].failures.add("wrong: outputs []")
    assert not made.good


def test_nothing_answered() -> None:
    made = result()
    made.steps = [Step(1, None, 1.0)]
    assert "–" in text(made) and not made.good and made.to_json()["steps"][0]["latency_ms"]["p50"] is None


@pytest.mark.parametrize("rate", [None, 100.0])
def test_chart(tmp_path: Path, rate: float | None) -> None:
    path = tmp_path / "chart.png"
    draw(result(rate), path)
    with Image.open(path) as image:
        assert image.size[0] > 800 and len(image.convert("RGB").getcolors(1 << 24) or ()) > 20


def test_charts_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="unknown file type"):
        draw(result(), tmp_path / "chart.txt")
    with pytest.raises(WriteError):
        draw(result(), tmp_path / "none" / "chart.png")
    empty = result()
    empty.steps = [Step(1, None, 1.0)]
    draw(empty, tmp_path / "empty.png")
