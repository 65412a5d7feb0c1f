"""The workloads of the eager benchmarks, run by ox, and what is said of one that fails."""

from __future__ import annotations

from typing import Any

import bench_eager
import bench_first_step
import numpy as np
import pytest
from rows import rows
from workloads import GROWTH, OPERATORS, STEPS, WORKLOADS, as_it_is, chosen, mlp, words_of

import ox

SMALLEST = [each.name(each.sizes[0]) for each in GROWTH]


def test_names() -> None:
    assert len(WORKLOADS) == len(STEPS) + len(OPERATORS) + sum(len(each.sizes) for each in GROWTH)
    assert {each.axis for each in GROWTH} == {"batch", "width", "depth", "sequence length", "image size"}
    assert list(chosen(["gelu", "growth: width"])) == ["gelu", *(f"growth: width {2**n}" for n in range(6, 11))]
    assert chosen([]) == WORKLOADS


@rows("name", ["step: mlp, batch 1", "step: lstm", "gelu", "embedding", "cross entropy", *SMALLEST])
def test_the_forward_goes_through_what_would_compile_it(name: str) -> None:
    """Otherwise the side of torch.compile would measure PyTorch eager."""
    calls = []

    def prepare(forward: Any) -> Any:
        return lambda *inputs: calls.append(1) or forward(*inputs)

    step = WORKLOADS[name](ox, prepare)
    assert not calls
    step()
    step()
    assert len(calls) == 2


@pytest.mark.parametrize("each", GROWTH, ids=lambda each: each.axis)
def test_a_size_changes_the_model_or_its_input(each: Any) -> None:
    """What is as large for every size would give a flat line."""
    amounts = []
    for size in each.sizes[:2]:
        seen: list[int] = []

        def prepare(forward: Any, seen: list[int] = seen) -> Any:
            model = forward.__closure__[1].cell_contents

            def counted(x: Any, *others: Any) -> Any:
                seen.append(x.numel() + sum(p.numel() for p in model.parameters()))
                return forward(x, *others)

            return counted

        WORKLOADS[each.name(size)](ox, prepare)()
        amounts += seen
    assert amounts[0] < amounts[1]


def test_a_step_trains() -> None:
    ox.manual_seed(0)
    losses = []

    def prepare(forward: Any) -> Any:
        def kept(*inputs: Any) -> Any:
            losses.append(forward(*inputs))
            return losses[-1]

        return kept

    step = mlp(ox, prepare, batch=4, width=8)
    for _ in range(20):
        step()
    assert losses[-1].item() < losses[0].item()
    assert np.isfinite(losses[-1].item())


def test_a_workload_that_fails_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.compile fails without a C++ compiler; the others are measured."""

    def prepare(forward: Any) -> Any:
        if isinstance(forward, ox.nn.GELU):
            raise RuntimeError("no C++ compiler\nand a long explanation")
        return forward

    monkeypatch.setenv("WORKLOADS", "gelu|silu")
    monkeypatch.setattr(bench_eager, "FEWER", 0.0)
    found = bench_eager.figures(ox, prepare)
    assert found["gelu"] == "RuntimeError: no C++ compiler"
    assert isinstance(found["silu"], float)


def test_what_a_side_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOADS", "silu|growth: batch 1|step: mlp, batch 1")
    monkeypatch.setattr(bench_eager, "SECONDS", 0.0)
    monkeypatch.setattr(bench_eager, "FEWER", 0.0)
    assert list(bench_eager.figures(ox, leave_out=bench_eager.GROWTHS)) == ["step: mlp, batch 1", "silu"]
    assert list(bench_eager.figures(ox, leave_out=bench_eager.NO_STEPS)) == ["step: mlp, batch 1"]


def test_words_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert words_of("What it is.", ["gelu", "step: mlp"]) == ["gelu", "step: mlp"]
    for arguments, code, said in ((["nosuch"], 2, "no workload has 'nosuch'"), (["--help"], 0, "What it is.")):
        with pytest.raises(SystemExit) as ended:
            words_of("What it is.", arguments)
        assert ended.value.code == code
        output = capsys.readouterr()
        assert said in output.out + output.err


def test_compiled_steps_take_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """`whole` is given the step, `prepare` its forward."""
    monkeypatch.setenv("WORKLOADS", "step: mlp, batch 1|silu")
    monkeypatch.setattr(bench_eager, "SECONDS", 0.0)
    made: list[Any] = []

    def whole(step: Any) -> Any:
        made.append(bench_eager.ox_compile(step))
        return made[-1]

    assert isinstance(bench_eager.figures(ox, as_it_is, whole, bench_eager.NO_STEPS)["step: mlp, batch 1"], float)
    (compiled,) = made
    assert "native" in str(compiled.explain())


def test_the_first_step_and_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOAD", "step: mlp, batch 1")
    found = bench_first_step.figures(ox, as_it_is)
    assert list(found) == [bench_first_step.WARM, bench_first_step.MEMORY]
    steps: list[int] = []
    bench_first_step.figures(ox, whole=lambda step: lambda: (step(), steps.append(1)), calls=2)
    assert len(steps) == 2 + bench_first_step.MORE
    monkeypatch.setattr(ox.nn, "Linear", None)
    assert str(bench_first_step.figures(ox)[bench_first_step.WARM]).startswith("TypeError: ")


def test_first_steps_by_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process of a side finds empty caches, and a side that failed is left out of the others."""
    seen: list[tuple[str, str, int]] = []
    warm, memory = bench_first_step.WARM, bench_first_step.MEMORY

    def measure(program: str, names: list[str], environment: dict[str, str], rounds: int) -> Any:
        seen.append((environment["WORKLOAD"], environment["OX_CACHE"], rounds))
        result = bench_first_step.Result()
        for side in names:
            if side == "compiled":
                result.failed[side] = "Killed"
            else:
                for _ in range(rounds):
                    result.add(side, {"figures": {warm: 2.0, memory: 3.0}, "memory": 4.0})
        return result

    monkeypatch.setattr(bench_first_step.sides, "measure", measure)
    result = bench_first_step.measure(["mlp", "gelu"], 2)
    assert [(name, rounds) for name, _, rounds in seen] == [
        ("step: mlp", 1),
        ("step: mlp", 2),
        ("step: mlp, batch 1", 1),
        ("step: mlp, batch 1", 2),
    ]
    assert seen[0][1] == seen[1][1] != seen[2][1], "one folder of caches a workload"
    assert result.figures[f"step: mlp: {bench_first_step.COLD}"] == {"ox": [2.0], "torch": [2.0], "whole": [2.0]}
    assert result.figures[f"step: mlp: {memory}"] == {"ox": [3.0, 3.0], "torch": [3.0, 3.0], "whole": [3.0, 3.0]}
    assert result.left_out["step: mlp"] == {"compiled": "the process failed: Killed"}
