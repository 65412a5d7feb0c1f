"""What only watches changes nothing: the same operators run, and give the same bits, as without it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn
from ox.core.mode import MODE
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.errors import TrainError
from ox.profiler import profile
from ox.train.diagnose.nonfinite import diagnose
from ox.train.run.config import executors

F = nn.functional
Watch = Callable[[], AbstractContextManager[Any]]

needs_kernels = pytest.mark.skipif(compiled.library() is None, reason="the functional API picks compiled kernels")


def data(*shape: int, seed: int = 0) -> ox.Tensor:
    return ox.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).requires_grad_()


def backward(y: ox.Tensor, *inputs: ox.Tensor) -> list[Any]:
    """The result and the gradients of its inputs, for a cotangent that differs by place."""
    y.backward(data(*y.shape, seed=9).detach())
    return [y.array, *[x.grad.array for x in inputs]]


def attention() -> list[Any]:
    q, k, v = (data(2, 2, 40, 16, seed=i) for i in range(3))
    return backward(F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)


def cross_entropy() -> list[Any]:
    scores = data(30, 70)
    return backward(F.cross_entropy(scores, ox.arange(30), reduction="none"), scores)


def lstm() -> list[Any]:
    ox.manual_seed(0)
    layer, x = nn.LSTM(5, 7, num_layers=2, bidirectional=True), data(6, 4, 5)
    return backward(layer(x)[0], x, *layer.parameters())


def gru() -> list[Any]:
    ox.manual_seed(0)
    layer, x = nn.GRU(5, 7), data(6, 4, 5)
    return backward(layer(x)[0], x, *layer.parameters())


def gelu() -> list[Any]:
    x = data(50, 90)
    return backward(F.gelu(x), x)


def max_pool() -> list[Any]:
    x = data(2, 3, 20, 20)
    return backward(F.max_pool2d(x, 3, stride=2), x)


def layer_norm() -> list[Any]:
    x, weight, bias = data(30, 40), data(40, seed=1), data(40, seed=2)
    return backward(F.layer_norm(x, [40], weight, bias), x, weight, bias)


def convolution() -> list[Any]:
    x, weight = data(2, 8, 12, 12), data(8, 8, 3, 3, seed=1)
    return backward(F.conv2d(x, weight, padding=1), x, weight)


def optimizer(kind: str) -> Callable[[], list[Any]]:
    def step() -> list[Any]:
        ox.manual_seed(0)
        layer = nn.Linear(40, 60)
        update = getattr(ox.optim, kind)(layer.parameters(), lr=0.01)
        for i in range(3):
            update.zero_grad()
            (layer(data(8, 40, seed=i).detach()) ** 2).mean().backward()
            update.step()
        return [p.array for p in layer.parameters()]

    return step


PARTS: dict[str, Callable[[], list[Any]]] = {
    "attention": attention,
    "cross_entropy": cross_entropy,
    "lstm": lstm,
    "gru": gru,
    "gelu": gelu,
    "max_pool": max_pool,
    "layer_norm": layer_norm,
    "convolution": convolution,
    "Adam": optimizer("Adam"),
    "SGD": optimizer("SGD"),
}


def everything() -> profile:
    return profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True, with_modules=True)


def all_at_once() -> AbstractContextManager[Any]:
    stack = ExitStack()
    for watch in (everything, ox.track_memory, profile, ox.autograd.detect_anomaly):
        stack.enter_context(watch())
    return stack


WATCHES: dict[str, Watch] = {
    "profiler": everything,
    "track_memory": ox.track_memory,
    "anomalies": ox.autograd.detect_anomaly,
    "all": all_at_once,
}


def same(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(
        a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True)
    )


def in_search(part: Callable[[], list[Any]]) -> list[Any]:
    """What it gives in the search for numbers that are not finite."""
    found: list[Any] = []
    error = diagnose(nn.Identity(), lambda model, batch: found.extend(part()), (), float("nan"), "step 1", [])
    assert isinstance(error, TrainError) and error.extra["cause"].startswith("not found")
    return found


def operators(p: profile) -> dict[str, int]:
    """How often each operator ran."""
    return {r.key: r.count for r in p.key_averages() if any(e.kind == "operator" for e in r.events)}


@rows("watch", WATCHES)
@rows("part", PARTS)
def test_the_same_bits(part: str, watch: str) -> None:
    expected = PARTS[part]()
    with WATCHES[watch]():
        found = PARTS[part]()
    assert same(found, expected)
    assert MODE.get().executor is None


@rows("part", PARTS)
def test_the_same_bits_in_the_search(part: str) -> None:
    assert same(in_search(PARTS[part]), PARTS[part]())


@needs_kernels
@pytest.mark.parametrize(
    ("part", "names"),
    [
        (attention, {"BlockwiseAttention": 1, "BlockwiseAttentionGradient": 1}),
        (cross_entropy, {"CrossEntropy": 1, "CrossEntropyGradient": 1}),
        (max_pool, {"MaxPool": 1, "MaxPoolGradient": 1}),
        (gelu, {"Gelu": 1, "GeluGradient": 1}),
    ],
)
def test_a_fused_function_is_one_row(part: Callable[[], list[Any]], names: dict[str, int]) -> None:
    with everything() as p:
        part()
    ran = operators(p)
    ran.pop("Range", None)  # the classes of the test itself
    assert ran == names
    for row in p.key_averages(group_by_stack_n=1):
        if row.key in names:
            assert row.stack.startswith("test_watching.py:"), row
            assert ("y.backward(" in row.stack) == row.key.endswith("Gradient")
    with profile() as outer, ox.track_memory(), profile() as inner:
        part()
    assert operators(outer) == operators(inner)


def test_recurrent_layers_are_one_row() -> None:
    with profile() as p:
        gru()
    ran = operators(p)
    assert ran["GRUGates"] == ran["GRUGradient"] == 1
    assert not {"MatMul", "Gemm", "Sigmoid", "Tanh"} & ran.keys()


def test_a_body_without_a_kernel_belongs_to_its_function() -> None:
    """What a kernel calls in turn has no row, no memory and no FLOPs of its own: they would count twice."""
    q, k, v = (ox.tensor(np.ones((1, 4, 8))) for _ in range(3))
    with everything() as p:
        ox.ops.ScaledAttention(q, k, v)
    assert operators(p) == {"ScaledAttention": 1}
    whole = p.key_averages().total_average()
    assert whole.flops == 2 * 2 * 4 * 4 * 8
    assert whole.self_cpu_memory_usage == whole.cpu_memory_usage == 8 * (4 * 8 + 4 * 4)


@needs_kernels
def test_memory_that_a_fused_function_makes_and_keeps() -> None:
    q, k, v = (data(2, 64, 8, seed=i) for i in range(3))
    with profile(profile_memory=True) as p, ox.track_memory() as memory:
        y = F.scaled_dot_product_attention(q, k, v)
        output, logs = 4 * 2 * 64 * 8, 4 * 2 * 64
        assert memory.current - memory.before == memory.made == output + logs  # no weights [2, 64, 64]
        assert memory.peak - memory.before == output + logs
        with ox.no_grad():
            F.scaled_dot_product_attention(q, k, v)
        assert memory.current - memory.before == output + logs
        del y
        assert memory.current == memory.before
    (row,) = p.key_averages()
    assert row.key == "BlockwiseAttention" and row.count == 2 and row.cpu_memory_usage == 2 * (output + logs)


def test_memory_that_a_recurrent_layer_keeps() -> None:
    T, N, H = 6, 4, 7
    layer = nn.LSTM(5, H)
    x = data(T, N, 5).detach()
    with ox.track_memory() as memory:
        y = layer(x)[0]
        gates_and_cells = 4 * 5 * T * N * H
        assert memory.current - memory.before >= gates_and_cells + y.array.nbytes
        with ox.no_grad():
            before = memory.current
            last = layer(x)[0]
            assert memory.current - before < gates_and_cells
    del last


@rows("name", ["numpy", "onnxruntime"])
@rows("watch", ["profiler", "track_memory", "all"])
def test_a_forced_executor_stays_forced(name: str, watch: str) -> None:
    parts = [PARTS[part] for part in ("attention", "cross_entropy", "gelu", "Adam")]
    with ox.devices.forced(name):
        expected = [part() for part in parts]
        alone = MODE.get().executor
        with WATCHES[watch]():
            assert MODE.get().executor is alone
            assert executors() == [f"on_{name}"]
            inside = [part() for part in parts]
    with WATCHES[watch]():
        assert MODE.get().executor is None and len(executors()) > 1
        with ox.devices.forced(name):
            assert MODE.get().executor is alone
            outside = [part() for part in parts]
        with ox.devices.forced(name), ox.devices.forced(None):
            assert MODE.get().executor is None
            free = [part() for part in parts]
    assert all(map(same, inside, expected)) and all(map(same, outside, expected))
    assert all(same(found, part()) for found, part in zip(free, parts, strict=True))


def test_which_operators_a_forced_executor_runs() -> None:
    with ox.devices.forced("onnxruntime"), profile() as p:
        gelu()  # ONNX Runtime has no GeluGradient, so the operators of its body run
    assert "GeluGradient" not in operators(p) and operators(p)["Erf"] == 1
    with ox.devices.forced("numpy"), profile() as p:
        gelu()
    assert operators(p) == {"Gelu": 1, "GeluGradient": 1}
    with profile() as p, ox.devices.forced("numpy"):
        gelu()
    assert operators(p) == {"Gelu": 1, "GeluGradient": 1}


@pytest.mark.parametrize("forced", [None, "numpy"])
def test_the_search_passes_what_attention_keeps(forced: str | None) -> None:
    def step(model: Any, batch: Any) -> None:
        q = data(1, 2, 4, 8)
        allowed = ox.tensor(np.zeros((4, 4), bool))  # rows that may go nowhere: their sums' logarithms are not finite
        y = F.scaled_dot_product_attention(q, q, q, allowed)
        (y + 1000).exp()

    with ox.devices.forced(forced) if forced else nullcontext():
        error = diagnose(nn.Identity(), step, (), float("nan"), "step 1", [])
    assert error.extra["cause"].startswith("Exp made the first infinity")
    assert "(y + 1000).exp()" in str(error.where)


@needs_kernels
def test_the_search_names_the_fused_function() -> None:
    def step(model: Any, batch: Any) -> None:
        q = data(1, 2, 4, 8)
        F.scaled_dot_product_attention(q * 1e25, q * 1e25, q)

    error = diagnose(nn.Identity(), step, (), float("nan"), "step 1", [])
    assert error.extra["cause"].startswith("BlockwiseAttention made the first ")
    assert "F.scaled_dot_product_attention(q * 1e25" in str(error.where)
