"""The timer with a clock of its own, so that nothing here depends on how fast anything is."""

from __future__ import annotations

from typing import Any

import pytest

import ox
from ox.errors import ArgumentError
from ox.utils import benchmark
from ox.utils.benchmark import Compare, Measurement, TaskSpec, Timer


class Clock:
    """Moves only when a statement moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def timed(stmt: str = "clock.pass_(0.002)", **options: Any) -> Timer:
    clock = Clock()
    return Timer(stmt, timer=clock, globals={"clock": clock}, **options)


def test_timeit() -> None:
    m = timed(label="wait").timeit(50)
    assert m.number_per_run == 50 and len(m.times) == 1 and m.median == pytest.approx(0.002) == m.mean
    assert "2.00 ms" in repr(m) and "1 measurement, 50 runs per measurement" in repr(m)


def test_blocked_autorange() -> None:
    told: list[Any] = []
    m = timed().blocked_autorange(callback=lambda n, t: told.append((n, t)), min_run_time=0.1)
    assert sum(m.raw_times) >= 0.1 and m.median == pytest.approx(0.002) and len(told) == len(m.raw_times)
    assert m.iqr == pytest.approx(0) and not m.has_warnings and m.meets_confidence()


def test_adaptive_autorange_stops() -> None:
    m = timed().adaptive_autorange()
    assert m.median == pytest.approx(0.002) and len(m.times) == 6  # which took the least time
    clock = Clock()
    uneven = iter(range(10**6))
    names = {"clock": clock, "uneven": uneven}
    m = Timer("clock.pass_(1 + next(uneven) % 7)", timer=clock, globals=names).adaptive_autorange(max_run_time=40)
    assert sum(m.raw_times) > 40 and m.has_warnings and "WARNING" in repr(m)


def test_the_code_sees_its_names() -> None:
    m = Timer("y = x + 1.0", setup="x = ox.ones(2)").timeit(3)
    assert m.median > 0 and "setup: x = ox.ones(2)" in repr(m) and m.num_threads == ox.get_num_threads()


def measured(seconds: list[float], **names: Any) -> Measurement:
    return Measurement(1, seconds, TaskSpec("f()", "pass", **names))


def test_statistics_and_merging() -> None:
    m = measured([1.0, 2.0, 3.0, 4.0, 5.0])
    assert m.median == 3 and m.mean == 3 and m.iqr == 2 and m.has_warnings and m.title == "f()" == m.as_row_name
    steady = measured([1.0, 1.0001, 0.9999] * 20)
    assert steady.significant_figures > m.significant_figures == 1
    merged = Measurement.merge([measured([1.0]), measured([3.0]), measured([9.0], label="other")])
    assert [x.times for x in merged] == [[1.0, 3.0], [9.0]]
    assert measured([1.0], label="a", sub_label="b").title == "a: b"


def test_tables() -> None:
    results = [
        measured([0.001], label="sort", sub_label=size, description=how, num_threads=threads)
        for size in ("small", "large")
        for how in ("ox", "plain")
        for threads in (1, 2)
    ]
    table = Compare(results)
    text = str(table)
    assert text.count("1.0") == 8 and "1 threads:" in text and "2 threads:" in text and "[ sort -" in text
    assert text.index("1 threads:") < text.index("2 threads:") and "Times are in milliseconds (ms)." in text
    table.extend_results([measured([0.004, 0.008, 0.004, 0.008], label="sort", sub_label="small", description="slow")])
    table.trim_significant_figures()
    table.highlight_warnings()
    table.colorize(rowwise=True)
    text = str(table)
    assert "\033[92m" in text and "\033[91m" in text and "(! " in text
    with pytest.raises(ArgumentError):
        Compare([1])  # type: ignore[list-item]
    assert len(str(Compare([measured([2.0]), measured([3e-9], label="x")])).split("Times are in")) == 3


@pytest.mark.parametrize(
    ("seconds", "unit", "scale"), [(2.0, "s", 1.0), (0.5, "ms", 1e-3), (2e-6, "us", 1e-6), (3e-9, "ns", 1e-9)]
)
def test_units(seconds: float, unit: str, scale: float) -> None:
    assert benchmark.select_unit(seconds) == (unit, scale)


def test_significant_figures() -> None:
    assert benchmark.trim_sigfig(3.14159, 2) == pytest.approx(3.1)
    assert benchmark.trim_sigfig(12345, 2) == 12000 and benchmark.trim_sigfig(0, 2) == 0


def test_other_languages_are_refused() -> None:
    with pytest.raises(ArgumentError, match="runs Python"):
        Timer("x", language="cpp")
