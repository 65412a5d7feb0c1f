"""What the account of a small step counts."""

from __future__ import annotations

from typing import Any

import pytest
from bench_call_parts import PHASES, Calls, layers, phases
from workloads import Training, as_it_is, mlp

import ox
from ox.devices.cpu_kernels import kernel_table as compiled


@pytest.fixture
def step() -> Training:
    found = mlp(ox, as_it_is, batch=2, width=8, depth=1)
    assert isinstance(found, Training)
    return found


def names(calls: Calls) -> list[str]:
    return [op.name for op, *_ in calls.operators]


def test_the_calls_of_a_step(step: Training) -> None:
    """A layer, and the loss, are one call forward, and one backward where a gradient follows all inputs."""
    if compiled.library() is None:
        pytest.skip("without compiled kernels a step calls other operators")
    losses: list[Any] = []
    forward = Calls(lambda: losses.append(step.loss()))
    backward = Calls(lambda: losses[0].backward(retain_graph=True))
    assert names(forward) == ["Linear", "Relu", "Linear", "Reshape", "MeanCrossEntropy"]
    assert names(backward) == [
        "Div", "CrossEntropyGradient", "Reshape", "LinearGradient", "ReluGradient", "Gemm", "ReduceSum",
    ]  # fmt: skip
    for calls in (forward, backward):
        assert [op for op, *_ in calls.executors] == [op for op, *_ in calls.operators]
        calls.run_operators()
        calls.run_executors()


def test_its_figures(step: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench_call_parts.COUNT", 3)
    assert list(phases(step)) == list(PHASES)
    assert all(took > 0 for took in phases(step).values())
    assert [layer.partition(": ")[0] for layer in layers(step)] == ["forward"] * 3 + ["backward"] * 2
