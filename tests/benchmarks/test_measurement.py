"""A measurement: put together from the benchmarks, kept as a file."""

from __future__ import annotations

import measurement
import pytest
from benchmark_sides import Result
from measurement import Measurement, Spread
from step_profile import Cost


def test_it_is_read_as_it_was_written(measured: Measurement) -> None:
    assert Measurement.from_json(measured.to_json()) == measured
    assert measured.profile["step: mlp"]["ox"] == [Cost("Gemm", 3, 0.9, 0.3), Cost("step", 1, 0.5, 0.17)]


def test_medians_and_ratios(measured: Measurement) -> None:
    assert Spread.of([3.0, 1.0, 7.0]) == Spread(3.0, 1.0, 7.0)
    assert measured.median("step: mlp", "ox") == 3.1
    assert measured.median("step: mlp: peak memory, MiB", "torch") == 95
    assert measured.ratio("gelu", "torch") == pytest.approx(1.41 / 0.85)
    assert measured.ratio("step: transformer", "compiled") is None
    assert measured.ratio("no such workload", "torch") is None


def test_what_the_benchmarks_found_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = Result({"gelu": {"ox": [1.23456789]}}, {"silu": {"compiled": "why"}}, {"without": "Killed"})
    first = Result({"step: cnn: first step, ms": {"ox": [2.0]}}, {"step: cnn": {"torch": "so"}, "step: mlp": {}})
    asked = []
    monkeypatch.setattr(measurement.sides, "measure", lambda *given: asked.append(given) or eager)
    monkeypatch.setattr(measurement.bench_first_step, "measure", lambda *given: asked.append(given) or first)
    monkeypatch.setattr(measurement.step_profile, "measure", lambda words: {"step: cnn": {"ox": "words"}})
    monkeypatch.setattr(measurement, "versions", lambda: {"ox": "0.1"})
    found = measurement.measure(["gelu", "cnn"], 2)
    assert [given[2:] for given in asked] == [({"WORKLOADS": "gelu|cnn"}, 2), ()]
    assert asked[1] == (["gelu", "cnn"], 2)
    assert found.times == {"gelu": {"ox": [1.2346]}}
    assert found.first == first.figures
    assert found.left_out == {"silu": {"compiled": "why"}, "step: cnn": {"torch": "so"}}
    assert found.failed == {"without": "Killed"}
    assert found.profile == {"step: cnn": {"ox": "words"}}
    assert found.rounds == 2
    assert found.machine.cpu and found.machine.cores >= 1 and found.machine.memory >= 1
