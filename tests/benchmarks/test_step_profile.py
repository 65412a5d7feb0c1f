"""The most expensive operators of a step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import step_profile
from benchmark_sides import SideFailed, run_side
from step_profile import PROFILED, Cost, costs


def row(key: str, own: float, count: int = PROFILED, phase: str = "forward") -> SimpleNamespace:
    return SimpleNamespace(key=key, self_cpu_time_total=own, count=count, phase=phase)


def test_the_most_expensive_first() -> None:
    rows = [row("Add", 1000.0), row("Gemm", 6000.0, 10, "backward"), row("GemmBackward", 3000.0, phase="backward")]
    assert costs(rows) == [
        Cost("Gemm (in backward)", 2, 1.2, 0.6),
        Cost("GemmBackward", 1, 0.6, 0.3),
        Cost("Add", 1, 0.2, 0.1),
    ]
    many = costs([row(str(n), 10.0 + n) for n in range(12)])
    assert [each.name for each in many] == [str(n) for n in range(11, 1, -1)], "ten of them"


def test_it_sees_the_kernels_that_a_step_runs() -> None:
    """The gradient of pooling is one kernel, not its body of ScatterElements and others."""
    found = [
        Cost(*each) for each in run_side(step_profile.__file__, "ox", {"WORKLOAD": "step: cnn"})["figures"]["costs"]
    ]
    names = [each.name for each in found]
    assert {"Conv", "ConvWeights (in backward)", "MaxPoolGradient (in backward)"} <= set(names)
    assert not {"ScatterElements (in backward)", "Concat (in backward)"} & set(names)
    assert next(each.calls for each in found if each.name == "Conv") == 3
    assert 0.5 < sum(each.share for each in found) <= 1


def test_a_side_that_fails_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(program: str, side: str, environment: dict[str, str]) -> dict[str, object]:
        if side == "torch":
            raise SideFailed("ModuleNotFoundError: No module named 'torch'")
        return {"figures": {"costs": [[environment["WORKLOAD"], 1, 2.0, 0.5]]}}

    monkeypatch.setattr(step_profile.sides, "run_side", run)
    assert step_profile.measure(["cnn"]) == {
        "step: cnn": {
            "ox": [Cost("step: cnn", 1, 2.0, 0.5)],
            "torch": "ModuleNotFoundError: No module named 'torch'",
        }
    }
