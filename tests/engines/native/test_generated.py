"""Generated kernels: compiled once; nothing fused without a compiler; equal bits on any number of threads; for GPUs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvrtc import compiled, resources
from recorded_step import MODELS, OPTIMIZERS, Training, task_of

import ox
from ox import tolerance
from ox.engines.native import Native, engine
from ox.engines.native.aliases import Aliases
from ox.engines.native.fold import fold
from ox.engines.native.kernel_source import GPU_HEAD, source_of
from ox.engines.native.launches import Launch, launches
from ox.engines.native.regions import Single, fuse
from ox.kernels import compiler, generated
from ox.kernels.gpu_source import gpu_source

RANDOM = np.random.default_rng(0)


def gates(a: Any, b: Any, c: Any) -> Any:
    """Rows, columns and numbers broadcast over [4, 5, 300]."""
    return {"gate": (a * b).sigmoid() * (c + 1).tanh() + b.exp().sum(), "column": a * c}


def training() -> tuple[Training, tuple[Any, Any]]:
    make, data = MODELS["MLP"]
    ox.manual_seed(0)
    model = make()
    batch = data(np.random.default_rng(0), 5)
    return Training(model, OPTIMIZERS["AdamW"](model.parameters()), batch), batch


def gates_inputs() -> dict[str, Any]:
    shapes = {"a": (4, 5, 300), "b": (300,), "c": (4, 1, 1)}
    return {name: ox.from_numpy(RANDOM.normal(size=shape).astype(np.float32)) for name, shape in shapes.items()}


def test_one_compilation_for_a_graph_and_none_for_the_next(
    library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    run = compiler.run
    monkeypatch.setattr(compiler, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(
        compiler, "run", lambda command, temporary: (calls.append(Path(temporary)), run(command, temporary))
    )
    task = training()[0].task
    Native().build(task)
    assert len(calls) == 1 and len(list((tmp_path / "generated").glob("*.so"))) == 1
    Native().build(task)
    assert len(calls) == 1


def test_the_oldest_libraries_are_forgotten(library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "GENERATED", 2)
    texts = [f'#include "generated.h"\nextern "C" int number_{i}() {{ return {i}; }}\n' for i in range(4)]
    made = [compiler.generated_library(text, tmp_path) for text in texts]
    assert sorted(tmp_path.glob("*.so")) == sorted(made[2:])


@pytest.mark.parametrize("how", ["no library", "no compiler", "an error"])
def test_without_a_compiler_nothing_is_fused(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise compiler.CompilerError("g++ failed: no such thing")

    if how == "no library":
        monkeypatch.setattr(engine.compiled, "library", lambda: None)
        monkeypatch.setattr(engine, "reason", lambda: "they are switched off by OX_KERNELS=0")
    elif how == "no compiler":
        monkeypatch.setattr(compiler, "find_compiler", fail)
    else:
        monkeypatch.setattr(generated, "load", fail)
    step, batch = training()
    executable = Native().build(step.task)
    first, second, *_ = executable.explain()
    assert first.startswith("0 of ") and second.startswith("nothing is fused: ")
    step.check(executable, [batch] * 3)


def test_bits_do_not_depend_on_threads(library: Any) -> None:
    inputs = gates_inputs()
    executable = Native().build(task_of(gates, inputs))
    arrays = [x.array for x in inputs.values()]
    library.set_threads(1)
    alone = executable(arrays)
    for threads in (2, 3):
        library.set_threads(threads)
        for one, other in zip(executable(arrays), alone, strict=True):
            np.testing.assert_array_equal(one, other)


def test_rows_and_columns(library: Any) -> None:
    inputs = gates_inputs()
    got = Native().build(task_of(gates, inputs))([x.array for x in inputs.values()])
    for one, other in zip(got, gates(*inputs.values()).values(), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "shapes",
    [
        [(3, 4), (4,)], [(3, 4), (3, 1)], [(2, 3, 4), (3, 1)], [(2, 3, 4), (2, 1, 4)], [(2, 3, 4), (1, 3, 1)],
        [(2, 1, 4), (3, 1)], [(5, 1), (1, 6)], [(2, 3, 2, 3), (3, 1, 3)], [(2, 3, 2, 3), (2, 1, 2, 1)], [(1,), (1, 1)],
        [(7, 3000), (3000,)], [(3000, 7), (3000, 1)], [(2, 2, 2, 2, 2), (2, 1, 2, 1, 2)], [(), (3,)],
    ],
)  # fmt: skip
def test_broadcasting(shapes: list[tuple[int, ...]], library: Any) -> None:
    a, b = (RANDOM.normal(size=shape).astype(np.float32) for shape in shapes)
    task = task_of(lambda a, b: (a - b) * 2 + b, {"a": ox.from_numpy(a), "b": ox.from_numpy(b)})
    np.testing.assert_allclose(Native().build(task)([a, b])[0], (a - b) * 2 + b, rtol=1e-6)


def test_the_optimizer_is_one_launch_for_equal_loops(library: Any) -> None:
    """Moments and parameters of all tensors, in place."""
    step, _ = training()
    lines = Native().build(step.task).explain()
    updates = [line for line in lines if "Sqrt" in line and "[33" in line]
    assert len(updates) == 1 and updates[0].startswith("6 × "), lines


@pytest.mark.parametrize("shape", [(7,), (3, 5), (200, 300), (2, 40, 50)])
@pytest.mark.parametrize("row", [False, True])
def test_a_sum_at_the_end(shape: tuple[int, ...], row: bool, library: Any) -> None:
    """Of the region's elements, which others read as well; what needs the sum is another region."""
    a = RANDOM.normal(size=shape).astype(np.float32)
    b = RANDOM.normal(size=shape[-1:] if row else ()).astype(np.float32)

    def function(a: Any, b: Any) -> dict[str, Any]:
        square = (a - b) * (a - b)
        return {"mean": square.mean(), "square": square, "scaled": square / square.sum()}

    task = task_of(function, {"a": ox.from_numpy(a), "b": ox.from_numpy(b)})
    executable = Native().build(task)
    summing = [line for line in executable.explain()[1:] if "Reduce" in line and not line.startswith("by themselves")]
    assert len(summing) == 1, executable.explain()
    want = function(ox.from_numpy(a), ox.from_numpy(b))
    library.set_threads(1)
    alone = executable([a, b])
    library.set_threads(3)
    for got, one, tensor in zip(executable([a, b]), alone, want.values(), strict=True):
        np.testing.assert_array_equal(got, one)
        assert tolerance.compare(got, tensor.numpy()).ok


def test_norms_of_all_gradients_are_one_launch(library: Any) -> None:
    make, data = MODELS["MLP"]
    model = make()
    training = Training(model, OPTIMIZERS["SGD"](model.parameters()), data(np.random.default_rng(0), 5), clip=0.1)
    lines = Native().build(training.task).explain()
    assert any(line.startswith("6 × Abs Mul ReduceSum") for line in lines), lines


def test_what_explain_says(library: Any) -> None:
    lines = Native().build(training()[0].task).explain()
    assert " fused regions; " in lines[0]
    assert any("self.optimizer.step()" in line for line in lines)
    assert any(line.startswith("by themselves: ") and "ox.Linear 3" in line for line in lines)
    assert "bytes planned" in lines[-1]
    small = Native().build(task_of(lambda a: (a.T @ a).exp() @ a.T, {"a": ox.ones(1, 2)})).explain()
    assert re.search(r"memory inside a call: [\d,]+ bytes planned$", small[-1])  # they are rounded up: nothing is saved


def gpu_text(task: Any) -> str:
    """The source of a task's kernels."""
    folded = fold(task.graph)
    parts = fuse(task.graph, folded)
    aliases = Aliases(task, [part.node for part in parts if isinstance(part, Single)])
    work = launches(parts, folded, task.updates, aliases)
    texts = dict.fromkeys(part.text for part in work if isinstance(part, Launch))
    return source_of({text: f"region_{i}" for i, text in enumerate(texts)}, GPU_HEAD)


def test_text_compiles_for_gpus() -> None:
    rows = task_of(
        lambda a: (a - a.amax(-1, keepdim=True)).exp() / a.exp().mean(-1, keepdim=True), {"a": gates_inputs()["a"]}
    )
    for task in (training()[0].task, task_of(gates, gates_inputs()), rows):
        source = gpu_text(task)
        code = compiled(gpu_source(source), "compute_90")
        assert ".entry region_0(" in code and code.count(".entry region_") == source.count("ROWS(region_")


@pytest.mark.parametrize("columns", [33, 768, 1024])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_numbers_that_loops_share_are_in_registers_of_a_gpu(architecture: str, columns: int) -> None:
    """Not in local memory, however much the loops compute."""

    def rows(a: Any) -> Any:
        shared = [(a - a.amax(-1, keepdim=True)).exp(), (a * 2).tanh(), a.sigmoid(), a.abs() ** 2.3]
        return sum(each / each.sum(-1, keepdim=True) for each in shared)

    source = gpu_source(gpu_text(task_of(rows, {"a": ox.ones(4, 5, columns)})))
    assert source.count("    KEPT(") == 4
    (found,) = resources(source, architecture).values()
    assert found.registers < 256 and found.stack == found.spills == 0, found


def test_kernels_serve_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    load = generated.load
    monkeypatch.setattr(
        generated, "load", lambda library, text, names: texts.append(text) or load(library, text, names)
    )
    scale = ox.randn(1, 32)

    def normalized(x: ox.Tensor) -> ox.Tensor:
        centred = x * scale - (x * scale).mean(-1, keepdim=True)
        return (centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()).tanh() * scale + x[:, :1]

    for rows in (600, 1000):
        x = ox.randn(rows, 32)
        got = Native().build(task_of(normalized, {"x": x}))([x.array])[0]
        np.testing.assert_allclose(got, normalized(x).numpy(), rtol=2e-5, atol=2e-5)
    assert len(texts) == 2 and texts[0] == texts[1]
