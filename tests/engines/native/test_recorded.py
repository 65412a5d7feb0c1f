"""Recorded kernels: repeated on the same arrays they give what the kernels give for the numbers that are there then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from recorded_step import task_of

import ox
from ox import devices, ops, tolerance
from ox.core.operator import OPS
from ox.devices.executors import dispatch
from ox.engines.engine import Task
from ox.engines.native import Native
from ox.engines.native.recorder import RECORDABLE
from ox.engines.native.steps import RecordedStep
from ox.graph.ir import Graph, Node, Value

RANDOM = np.random.default_rng(0)
Arrays = list[Any]


def f(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def classes(rows: int, count: int) -> Any:
    target = RANDOM.integers(0, count, rows)
    target[::5] = -100
    return target


def pooled() -> Arrays:
    x = f(2, 3, 8, 8)
    _, places = OPS["MaxPool"].kernel(np, x, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    return [f(2, 3, 4, 4), places]


def normalized() -> Arrays:
    x, scale = f(40, 64), f(64)
    _, mean, inverse = OPS["LayerNormalization"].kernel(np, x, scale, None, outputs=3)
    return [f(40, 64), x, scale, mean, inverse]


def attended() -> Arrays:
    q, k, v = (f(2, 3, 20, 16) for _ in range(3))
    y, logs = OPS["ox.BlockwiseAttention"].kernel(np, q, k, v)
    return [f(2, 3, 20, 16), q, k, v, y, logs]


def scored() -> Arrays:
    scores, target = f(40, 11), classes(40, 11)
    return [f(40), scores, target, np.log(np.exp(scores).sum(1))]


STEPS = {"strides": [1, 1], "dilations": [1, 1]}
# By operator: inputs, attributes, how many outputs
CASES: dict[str, list[tuple[Callable[[], Arrays], dict[str, Any], int]]] = {
    "ox.Linear": [
        (lambda: [f(6, 20), f(7, 20), f(7)], {}, 1),
        (lambda: [f(64, 100), f(90, 100), f(90)], {}, 1),
        (lambda: [f(8, 30, 100), f(90, 100)], {}, 1),
    ],
    "ox.LinearGradient": [
        (lambda: [f(6, 7), f(6, 20), f(7, 20)], {"bias": 1}, 3),
        (lambda: [f(512, 90), f(512, 100), f(90, 100)], {"bias": 1}, 3),
        (lambda: [f(4, 30, 90), f(4, 30, 100), f(90, 100)], {"bias": 0}, 2),
    ],
    "MatMul": [(lambda: [f(100, 90), f(90, 110)], {}, 1), (lambda: [f(4, 50, 80), f(4, 80, 70)], {}, 1)],
    "Gemm": [(lambda: [f(90, 100), f(90, 110)], {"transA": 1}, 1), (lambda: [f(90, 100), f(100, 110), f(110)], {}, 1)],
    "Conv": [
        (lambda: [f(2, 3, 9, 9), f(5, 3, 3, 3), f(5)], {"pads": [1, 1, 1, 1]}, 1),
        (lambda: [f(2, 4, 9, 9), f(6, 2, 3, 3)], {"group": 2, "strides": [2, 2]}, 1),
        (lambda: [f(2, 3, 30), f(5, 3, 3)], {}, 1),
    ],
    "ConvTranspose": [(lambda: [f(2, 3, 9, 9), f(3, 5, 3, 3), f(5)], {"strides": [2, 2]}, 1)],
    "ox.ConvWeights": [
        (lambda: [f(2, 3, 9, 9), f(2, 5, 9, 9)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], **STEPS}, 1)
    ],
    "MaxPool": [
        (lambda: [f(2, 3, 8, 8)], {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
        (lambda: [f(2, 3, 9, 9)], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, 2),
    ],
    "ox.MaxPoolGradient": [(pooled, {"shape": [2, 3, 8, 8]}, 1)],
    "ox.AveragePoolGradient": [
        (
            lambda: [f(2, 3, 4, 4)],
            {
                "shape": [2, 3, 8, 8],
                "kernel_shape": [3, 3],
                "strides": [2, 2],
                "dilations": [1, 1],
                "pads": [1, 1, 1, 1],
                "ceil_mode": 0,
                "count_include_pad": 0,
            },
            1,
        )
    ],
    "Softmax": [(lambda: [f(40, 70)], {"axis": -1}, 1)],
    "ox.SoftmaxGradient": [(lambda: [f(40, 70), f(40, 70)], {"axis": -1}, 1)],
    "LogSoftmax": [(lambda: [f(40, 70)], {"axis": -1}, 1)],
    "ox.LogSoftmaxGradient": [(lambda: [f(40, 70), f(40, 70)], {"axis": -1}, 1)],
    "ox.CrossEntropy": [(lambda: [f(40, 11), classes(40, 11)], {"ignore_index": -100}, 2)],
    "ox.MeanCrossEntropy": [(lambda: [f(40, 11), classes(40, 11)], {"ignore_index": -100}, 3)],
    "ox.MeanSmoothedCrossEntropy": [
        (lambda: [f(40, 11), classes(40, 11)], {"ignore_index": -100, "smoothing": 0.2}, 3)
    ],
    "ox.SmoothedCrossEntropyGradient": [(lambda: [f(), *scored()[1:]], {"ignore_index": -100, "smoothing": 0.2}, 1)],
    "BatchNormalization": [
        (lambda: [f(4, 3, 9, 9), f(3), f(3), f(3), np.abs(f(3))], {"training_mode": 1, "momentum": 0.0}, 3)
    ],
    "ox.CrossEntropyGradient": [
        (scored, {"ignore_index": -100}, 1),
        (lambda: [f(), *scored()[1:]], {"ignore_index": -100}, 1),
    ],
    "LayerNormalization": [
        (lambda: [f(40, 64), f(64), f(64)], {"axis": -1}, 3),
        (lambda: [f(4, 10, 64), f(10, 64)], {"axis": 1}, 1),
    ],
    "ox.LayerNormalizationGradient": [(normalized, {"axis": -1}, 3)],
    "ox.BatchNormalizationGradient": [(lambda: [f(4, 3, 30, 30), f(4, 3, 30, 30), f(3)], {}, 3)],
    "ox.BlockwiseAttention": [(lambda: [f(2, 3, 20, 16) for _ in range(3)], {"causal": 1}, 2)],
    "ox.BlockwiseAttentionGradient": [(attended, {}, 3)],
}
FLAT = [(name, i) for name, cases in CASES.items() for i in range(len(cases))]


def task_of_node(name: str, arrays: Arrays, attributes: dict[str, Any], count: int, results: Arrays) -> Task:
    op = OPS[name]
    inputs = [Value(f"in{i}", a.dtype, a.shape, a.shape) for i, a in enumerate(arrays)]
    outputs = [Value(f"out{i}", a.dtype, a.shape, a.shape) for i, a in enumerate(results)]
    node = Node(op.name, op.domain, list(inputs), outputs, {**op.schema.attributes, **attributes})
    return Task(Graph(inputs, outputs, [node]))


def eager(name: str, arrays: Arrays, attributes: dict[str, Any], count: int) -> Arrays:
    op = OPS[name]
    more = {**op.schema.attributes, **attributes, **({"outputs": count} if op.takes_output_count else {})}
    made = dispatch(op, list(arrays), more, devices.accelerated(op, arrays))
    return [np.asarray(each) for each in (made if isinstance(made, tuple) else (made,))][:count]


def test_every_recordable_operator_has_a_case() -> None:
    assert CASES.keys() == RECORDABLE


@pytest.mark.parametrize("name, number", FLAT)
def test_a_recording_is_the_kernel(name: str, number: int, library: Any) -> None:
    make, attributes, count = CASES[name][number]
    arrays = make()
    executable = Native().build(task_of_node(name, arrays, attributes, count, eager(name, arrays, attributes, count)))
    assert any(isinstance(step, RecordedStep) for step in executable._schedule.steps), "it was not recorded"
    for again in range(4):
        new = make()
        if again == 2:
            arrays = new  # other arrays
        else:
            for array, numbers in zip(arrays, new, strict=True):
                array[...] = numbers
        for got, want in zip(executable(arrays), eager(name, arrays, attributes, count), strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_chain_in_planned_memory(library: Any) -> None:
    """What a recorded kernel reads and writes are results of launches and of other kernels, also through views."""

    def function(x: Any, w: Any) -> dict[str, Any]:
        y = ops.Linear(x.exp(), w).relu()
        z = ops.Softmax(y.reshape(10, -1).t().contiguous() * 2)
        both = ops.Concat(z, z + 1, axis=-1).reshape(100, -1).t().reshape(100, -1).exp()
        return {"z": z.sum(), "back": ops.MatMul(z.reshape(80, 50).exp(), z.reshape(50, 80)), "old": w.t() + both[:, 0]}

    x, w = f(40, 100) / 10, f(100, 100) / 10
    task = task_of(function, {"x": ox.from_numpy(x), "w": ox.from_numpy(w)})
    executable = Native().build(task)
    for _ in range(3):
        x, w = x + 0.01, w.copy()
        got = executable([x, w])
        want = function(ox.from_numpy(x), ox.from_numpy(w))
        for one, tensor in zip(got, want.values(), strict=True):
            assert tolerance.compare(one, tensor.numpy()).ok
    assert not np.may_share_memory(got[1], executable([x, w])[1])


def test_inputs_that_are_not_dense(library: Any) -> None:
    x, w = f(100, 40).T, f(2, 90, 100)[:, ::2][0]
    task = task_of(lambda x, w: ops.Linear(x, w) * 2, {"x": ox.from_numpy(f(40, 100)), "w": ox.from_numpy(f(45, 100))})
    executable = Native().build(task)
    for _ in range(2):
        np.testing.assert_allclose(executable([x, w])[0], 2 * x @ w.T, rtol=1e-4, atol=1e-4)
        x += 1
        w -= 1
