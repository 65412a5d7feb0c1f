"""What is measured at load: never a time, only what follows from one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model
from ox.serve.tuning import measure
from ox.serve.tuning.measure import best_rows, throughput


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has runs take what a function of their rows says, without taking it."""

    def install(seconds: Any) -> list[int]:
        asked: list[int] = []

        def quickest(_: Any, feed: Any, __: float, now: Any) -> float:
            asked.append(len(feed["x"]))
            return float(seconds(asked[-1]))

        monkeypatch.setattr(measure, "_shortest_run", quickest)
        return asked

    return install


ROW = {"x": np.zeros((1, 4), np.float32)}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (lambda n: 120e-6 * n, 8),  # the cost of a batch itself is spread
        (lambda n: 0.01 * n, 8),  # no row is quicker for having company, and none slower
        (lambda n: 0.01 * n * (1.0 if n <= 2 else 1.3), 1),
        (lambda n: 30e-6 * n + 1e-3 * (n > 4), 4),
        (lambda n: 5e-6 + 1e-8 * n, 32),
        (lambda n: 0.01 + 1e-6 * n, 32),
        (lambda n: 1e-3 * n * (1.0 if n <= 8 else 1.2) + 1e-3, 8),  # a cache that is too small from 16 on
    ],
)
def test_rows(timed: Any, seconds: Any, expected: int) -> None:
    timed(seconds)
    assert best_rows(lambda feed: [], ROW, 32, SYSTEM.now) == expected


def test_a_slow_model_is_not_run_for_long(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "BUDGET_S", 0.0)
    asked = timed(lambda n: 1.0 * n)
    best_rows(lambda feed: [], ROW, 32, SYSTEM.now)
    assert asked == [1, 2, 4]


def test_a_model_that_takes_one_row_only() -> None:
    def run(feed: Any) -> Any:
        if len(feed["x"]) > 1:
            raise ServeError("no")
        return []

    assert best_rows(run, ROW, 32, SYSTEM.now) is None


def test_all_sizes_are_rows_of_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds: dict[int, Any] = {}
    best_rows(lambda feed: [feeds.setdefault(len(feed["x"]), feed["x"])], ROW, 32, lambda: 0.0)
    assert list(feeds) == [1, 2, 4, 8, 16, 32]
    assert all(np.shares_memory(x, feeds[32]) and x.flags.c_contiguous for x in feeds.values())

    def repeat(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(measure.np, "repeat", repeat)
    assert best_rows(lambda feed: [], ROW, 32, lambda: 0.0) is None


def test_what_is_told_is_not_measured(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "best_rows", lambda *_: 2)
    model = Model(mlp, ModelConfig(), RequestLimits())
    assert model.proof.max_rows == 2 and "batch size up to 2 (measured), proven" in model.describe()
    told = Model(mlp, ModelConfig(max_rows=4, instances=3, threads=1), RequestLimits())
    assert (told.proof.max_rows, told.instances, told.threads) == (4, 3, 1)
    assert not told.fit.measured and "3 instances × 1 thread · batch size up to 4, proven" in told.describe()
    monkeypatch.setattr(measure, "best_rows", lambda *_: 1)
    assert "batching off: batches are not faster (measured)" in Model(mlp, ModelConfig(), RequestLimits()).describe()


@pytest.mark.parametrize(
    ("together", "chosen"),
    [([300.0] * 3, (1, 2)), ([115.0] * 3, (2, 1)), ([300.0, 300.0, 90.0], (2, 1)), ([50.0] * 3, (2, 1))],
)
def test_threads(mlp: Path, monkeypatch: pytest.MonkeyPatch, together: list[float], chosen: tuple[int, int]) -> None:
    monkeypatch.setattr(measure, "usable_threads", lambda: 2)
    monkeypatch.setattr(measure, "HANDOFF_S", 0.0)  # no model is too quick for it
    monkeypatch.setattr(measure, "SLOW_LOAD_S", 10.0)
    monkeypatch.setattr(measure, "throughput", lambda instances, *_: 100.0 if len(instances) == 2 else together.pop())
    model = Model(mlp, ModelConfig(max_rows=2), RequestLimits())
    assert (model.instances, model.threads) == chosen and "(measured)" in model.describe()
    assert len(model.batcher._instances) == chosen[0]


def test_throughput_counts_every_instance() -> None:
    class Counter:
        runs = 0

        def __call__(self, feeds: Any) -> Any:
            self.runs += 1
            return []

    counters: list[Any] = [Counter(), Counter()]
    assert throughput(counters, ROW, 0.02, SYSTEM.now) > 0 and all(counter.runs for counter in counters)


@pytest.mark.parametrize("broken", [lambda y: y + 1, lambda y: y[:0], lambda y: 1 / 0])
def test_buffers_that_do_not_work_are_left_alone(mlp: Path, monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    from ox.serve.runtime.io_binding import BufferedInstance

    monkeypatch.setattr(measure, "_binding_is_faster", lambda *_: True)
    assert Model(mlp, ModelConfig(max_rows=4), RequestLimits()).fit.bound == 4
    real = BufferedInstance.__call__
    monkeypatch.setattr(BufferedInstance, "__call__", lambda *args: [broken(y) for y in real(*args)])
    assert Model(mlp, ModelConfig(max_rows=4), RequestLimits()).fit.bound == 0
