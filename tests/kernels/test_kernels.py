"""Each kernel gives what NumPy gives, on shapes that do not fit its blocks, whatever the number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import get_native_id
from typing import Any

import numpy as np
import pytest
from waiting import wait_until

import ox
from ox import devices
from ox.core.operator import OPS, make_tensor
from ox.devices.cpu_kernels import attention as compiled_attention
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.dtypes import bfloat16, float64
from ox.errors import OxError
from ox.graph import fused_session
from ox.kernels import Library
from ox.tolerance import compare

R = np.random.default_rng(0)
Call = tuple[list[Any], dict[str, Any]]


def f(*shape: int) -> Any:
    return R.standard_normal(shape).astype(np.float32)


def flat(inputs: int = 1, **attributes: Any) -> list[Call]:
    return [([f(*shape) for _ in range(inputs)], attributes) for shape in ((9001,), (3, 5, 7, 100), (40_000,))]


def rows(inputs: int = 1) -> list[Call]:
    return [([f(*shape) for _ in range(inputs)], {}) for shape in ((2, 257), (1, 1000), (300, 3), (70, 5, 33))]


def conv(transposed: bool = False) -> list[Call]:
    calls: list[Call] = []
    for x, w, attributes in (
        ((2, 3, 9, 11), (5, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 16, 10, 9), (20, 16, 3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
        ((2, 8, 12, 12), (12, 4, 3, 3), {"group": 2, "dilations": [2, 1]}),
        ((2, 6, 13, 12), (12, 1, 5, 3), {"group": 6, "pads": [2, 1, 2, 1], "strides": [1, 2]}),
        ((2, 6, 13, 12), (6, 1, 3, 3), {"group": 6, "strides": [2, 1]}),
        ((2, 6, 13, 12), (12, 1, 5, 3), {"group": 6, "pads": [2, 1, 0, 2], "dilations": [1, 2]}),
        ((2, 5, 9, 70), (5, 1, 3, 3), {"group": 5, "pads": [3, 4, 3, 0]}),
        ((4, 7, 50), (9, 7, 5), {"dilations": [3], "pads": [2, 2]}),
        ((2, 300, 6, 5), (70, 300, 1, 1), {}),
        ((3, 3, 60, 61), (10, 3, 5, 4), {"pads": [2, 0, 2, 3], "dilations": [1, 2]}),  # of few channels, in lines
        ((2, 12, 9, 33), (9, 4, 3, 3), {"group": 3, "pads": [3, 1, 0, 2]}),
        ((17, 8, 30), (12, 8, 7), {"pads": [3, 3]}),
        ((3, 17, 9, 7), (37, 17, 3, 3), {"pads": [1, 1, 1, 1]}),  # from here on by Winograd's algorithm
        ((1, 300, 6, 7), (40, 300, 3, 3), {}),
        ((2, 20, 5, 270), (16, 20, 3, 3), {"pads": [2, 0, 1, 2]}),
        ((40, 100, 4, 4), (120, 100, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 3, 2, 2), (4, 3, 4, 4), {"pads": [3, 3, 3, 3]}),
    ):
        if transposed and w[2:] != (4, 4):
            group = attributes.get("group", 1)
            calls.append(([f(x[0], w[0], *x[2:]), f(*w), f(w[1] * group)], attributes))
            calls.append(([f(x[0], w[0], *x[2:]), f(*w)], attributes))
        elif not transposed:
            calls += [([f(*x), f(*w), f(w[0])], attributes), ([f(*x), f(*w)], attributes)]
    if not transposed:
        for x, w, attributes in (
            ((2, 5, 9, 8), (5, 6, 3, 2), {"pads": [1, 0, 2, 1], "dilations": [1, 2]}),
            ((2, 16, 9, 8), (16, 20, 3, 3), {"pads": [1, 1, 1, 1]}),
            ((2, 5, 19), (5, 6, 3), {"pads": [0, 0]}),
        ):  # a turned kernel, as the gradient of a Conv has it
            turned = f(*w).swapaxes(0, 1)[(..., *[slice(None, None, -1)] * (len(w) - 2))]
            calls += [([f(*x), turned, f(w[1])], attributes), ([f(*x), turned], attributes)]
    if transposed:
        options = {"strides": [2, 3], "output_padding": [1, 2], "pads": [1, 1, 1, 1]}
        calls.append(([f(2, 4, 5, 6), f(4, 3, 3, 4)], options))
    return calls


def conv_weights() -> list[Call]:
    calls: list[Call] = []
    kernels = (
        [3, 3],
        [3, 2],
        [3, 3],
        [5, 3],
        [3, 3],
        [5, 3],
        [3, 3],
        [5],
        [1, 1],
        [5, 4],
        [3, 3],
        [7],
        *[[3, 3]] * 4,
        [4, 4],
    )
    for (arrays, attributes), kernel in zip(conv()[1 : 2 * len(kernels) : 2], kernels, strict=True):
        with devices.forced("numpy"):
            y = OPS["Conv"](*arrays, **attributes).array
        rank = len(kernel)
        settings = {"dilations": [1] * rank, "pads": [0] * (2 * rank), "strides": [1] * rank, "kernel_shape": kernel}
        calls.append(([arrays[0], f(*y.shape)], {**settings, **attributes}))
    long = {"dilations": [3], "pads": [0, 0], "strides": [1], "kernel_shape": [5]}
    return [*calls, ([f(7, 8, 700), f(7, 5, 688)], long)]


def allowed(*shape: int) -> Any:
    """A mask of attention in which all queries see the first key."""
    mask = R.random(shape) > 0.3
    mask[..., 0] = True
    return mask


def average_pool_gradient() -> list[Call]:
    calls: list[Call] = []
    for shape, kernel, strides, dilations, pads, ceil_mode in (
        ([3, 5, 12, 11], [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], 0),
        ([3, 5, 12, 11], [3, 2], [1, 1], [1, 1], [1, 0, 1, 1], 0),
        ([2, 3, 13, 70], [3, 5], [2, 3], [1, 2], [1, 2, 0, 1], 1),
        ([3, 5, 40], [3], [2], [2], [1, 1], 1),
    ):
        for count_include_pad in (0, 1):
            attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads,
                          "ceil_mode": ceil_mode, "count_include_pad": count_include_pad}  # fmt: skip
            g = OPS["AveragePool"](f(*shape), **attributes).array
            calls.append(([f(*g.shape)], {"shape": shape, **attributes}))
    return calls


def attention(gradient: bool) -> list[Call]:
    calls: list[Call] = []
    shapes = (((2, 3), 70, 70, 16, 16), ((1,), 200, 150, 33, 20), ((2,), 5, 300, 64, 64))
    found = [
        (f(*lead, queries, width), f(*lead, keys, width), f(*lead, keys, value_width), masks, causal, 1)
        for lead, queries, keys, width, value_width in shapes
        for causal, masks in (
            (0, []),
            (1, []),
            (0, [allowed(queries, keys)]),
            (0, [None, f(queries, keys)]),
            (1, [allowed(*lead, 1, keys), f(*lead[:-1], 1, queries, 1), f(*lead, queries, keys)]),
        )
    ]
    for lead, keys, queries, group, masks in (
        ((2, 3), 140, 70, 4, [allowed(2, 1, 1, 140)]),
        ((2,), 300, 1, 5, [None, f(10, 1, 300)]),
        ((1, 2), 300, 2, 3, [allowed(2, 300), f(1, 6, 1, 1), f(6, 2, 1)]),
        ((2, 1, 2), 33, 90, 2, [allowed(2, 1, 1, 1, 33), f(4, 90, 1)]),
        ((20,), 40, 70, 3, [allowed(70, 40)]),
    ):
        for causal in (0, 1):
            q = f(*lead[:-1], lead[-1] * group, queries, 24)
            found.append((q, f(*lead, keys, 24), f(*lead, keys, 40), masks, causal, group))
    for q, k, v, masks, causal, group in found:
        settings = {"scale": 0.2, "causal": causal, "group": group}
        if gradient:
            with devices.forced("numpy"):
                y, logs = OPS["ox.BlockwiseAttention"](q, k, v, *masks, outputs=2, **settings)
            calls.append(([f(*y.shape), q, k, v, y.array, logs.array, *masks], {**settings, "outputs": 3}))
        else:
            calls.append(([q, k, v, *masks], {**settings, "outputs": 2}))
    return calls


def norm_gradient() -> list[Call]:
    calls: list[Call] = []
    for shape, axis in (((5, 7, 64), -1), ((300, 33), -1), ((4, 3, 20), 1)):
        x, inner = f(*shape), shape[axis:]
        axes = tuple(range(len(shape) - len(inner), len(shape)))
        mean = x.mean(axis=axes, keepdims=True)
        inverse = 1 / np.sqrt(x.var(axis=axes, keepdims=True) + np.float32(1e-5))
        calls.append(([f(*shape), x, f(*inner), mean, inverse], {"axis": axis, "outputs": 3}))
    return calls


def cross_entropy(gradient: bool, outputs: int = 2, shared: bool = False, smoothing: float | None = None) -> list[Call]:
    """With `shared`, gradients of one cotangent for all rows."""
    calls: list[Call] = []
    for shape, ignored in (((2, 257), -100), ((1, 1000), 3), ((301, 3), 1)):
        scores, target = 5 * f(*shape), R.integers(0, shape[1], shape[0])
        logs = np.log(np.exp(scores).sum(axis=1))
        options: dict[str, Any] = {"ignore_index": ignored} | ({} if smoothing is None else {"smoothing": smoothing})
        if gradient:
            calls.append(([f() if shared else f(shape[0]), scores, target, logs], options))
        else:
            calls.append(([scores, target], {**options, "outputs": outputs}))
    return calls


def linear(gradient: bool) -> list[Call]:
    calls: list[Call] = []
    for lead, inside, outside in (((90,), 80, 70), ((1,), 600, 500), ((2, 256), 33, 40), ((2, 3, 5), 7, 4)):
        x, w = f(*lead, inside), f(outside, inside)
        for bias in (0, 1):
            if gradient:
                calls.append(([f(*lead, outside), x, w], {"bias": bias, "outputs": 2 + bias}))
            else:
                calls.append(([x, w, *[f(outside)] * bias], {}))
    return calls


def class_targets(gradient: bool) -> list[Call]:
    """WeightedCrossEntropy with and without weights and the spread."""
    calls: list[Call] = []
    for arrays, attributes in cross_entropy(gradient):
        own = {"ignore_index": attributes["ignore_index"]}
        g, (scores, target, *logs) = (arrays[0], arrays[1:]) if gradient else (None, arrays)
        for weight in (None, np.abs(f(scores.shape[1]))):
            if gradient:
                parts: Any = ([g], [g, f(len(g))], [None, g])
                calls += [([scores, target, *logs, weight, *part], own) for part in parts]
            else:
                calls += [([scores, target, weight], own | {"outputs": count}) for count in (1, 2, 3)]
    return calls


def soft_targets(gradient: bool) -> list[Call]:
    """SoftCrossEntropy with and without weights and smoothing."""
    calls: list[Call] = []
    for arrays, _ in cross_entropy(gradient):
        g, (scores, _target, *logs) = (arrays[:1], arrays[1:]) if gradient else ([], arrays)
        shares = np.abs(f(*scores.shape))
        for weight in ([], [np.abs(f(scores.shape[1]))]):
            for smoothing in (0.0, 0.3):
                settings = {"smoothing": smoothing} | ({} if gradient else {"outputs": 2})
                calls.append(([*g, scores, shares, *logs, *weight], settings))
    return calls


def reductions() -> list[Call]:
    calls: list[Call] = []
    for shape, axes in (
        ((9001,), None), ((7, 33), [-1]), ((300, 64), [1]), ((3, 5, 70), [1, 2]), ((40, 2049), [-1]),
        ((2, 3, 9, 11), [2, -1]),
        ((4, 130_000), [1]), ((900_001,), [0]), ((5, 3), [0, 1]),
    ):  # fmt: skip
        places = [] if axes is None else [np.array(axes)]
        calls += [([f(*shape), *places], {"keepdims": keep}) for keep in (0, 1)]
    return calls


def where() -> list[Call]:
    calls: list[Call] = []
    for shape in ((9001,), (3, 5, 70), (100, 200)):
        mask, number = R.random(shape) > 0.5, np.array(-2.5, np.float32)
        calls += [([mask, *pair], {}) for pair in ((f(*shape), f(*shape)), (number, f(*shape)), (f(*shape), number))]
    return calls


def triangles() -> list[Call]:
    return [
        ([a, *k], {"upper": upper})
        for a in (f(70, 50), f(2, 3, 20, 33), R.random((40, 41)) > 0.5)
        for k in ([], [np.array(3)], [np.array(-60)], [np.array(-2)])
        for upper in (0, 1)
    ]


def dropout() -> list[Call]:
    seed = (np.array(1234567890123, np.uint64), np.array(2**34 - 2, np.uint64))
    return [([f(*shape), *seed], {"p": p}) for shape in ((9001,), (3, 5, 7), (40_000,), (2,)) for p in (0.1, 0.5)]


IMAGES = ((3, 8, 9, 7), (2, 12, 30), (5, 4, 1, 1), (2, 6, 3, 4, 5))
CASES: dict[str, Callable[[], list[Call]]] = {
    **dict.fromkeys(("Exp", "Erf", "Tanh", "Sigmoid", "Softplus", "Swish", "ox.Silu", "Relu"), flat),
    "Log": lambda: [([np.abs(a) for a in arrays], options) for arrays, options in flat()],
    "Gelu": lambda: [*flat(), *flat(approximate="tanh")],
    "ox.GeluGradient": lambda: [*flat(2), *flat(2, approximate="tanh")],
    **{
        name: lambda: flat(2)
        for name in (
            "ox.SwishGradient",
            "ox.ReluGradient",
            "ox.TanhGradient",
            "ox.SigmoidGradient",
            "Add",
            "Sub",
            "Mul",
        )
    },
    "Softmax": rows,
    "LogSoftmax": rows,
    "ox.SoftmaxGradient": lambda: rows(2),
    "ox.LogSoftmaxGradient": lambda: rows(2),
    "ox.CrossEntropy": lambda: cross_entropy(gradient=False),
    "ox.MeanCrossEntropy": lambda: cross_entropy(gradient=False, outputs=3),
    "ox.MeanSmoothedCrossEntropy": lambda: cross_entropy(gradient=False, outputs=3, smoothing=0.2),
    "ox.SmoothedCrossEntropyGradient": lambda: cross_entropy(gradient=True, shared=True, smoothing=0.2),
    "ox.CrossEntropyGradient": lambda: cross_entropy(gradient=True) + cross_entropy(gradient=True, shared=True),
    "ox.WeightedCrossEntropy": lambda: class_targets(gradient=False),
    "ox.WeightedCrossEntropyGradient": lambda: class_targets(gradient=True),
    "ox.SoftCrossEntropy": lambda: soft_targets(gradient=False),
    "ox.SoftCrossEntropyGradient": lambda: soft_targets(gradient=True),
    "LayerNormalization": lambda: [
        *[([f(*s), f(s[-1]), f(s[-1])], {}) for s in ((6, 257), (1, 1000), (9, 5, 64))],
        ([f(4, 3, 50), f(3, 50)], {"axis": 1, "epsilon": 0.1, "outputs": 3}),
    ],
    "ox.LayerNormalizationGradient": norm_gradient,
    "RMSNormalization": lambda: [([f(*s), f(s[-1])], {"epsilon": 1e-3}) for s in ((6, 257), (1, 1000), (9, 5, 64))],
    "ox.RMSNormalizationGradient": lambda: [
        ([f(*s), f(*s), f(*s[axis:])], {"epsilon": 1e-3, "axis": axis, "outputs": 2})
        for s, axis in (((6, 257), -1), ((300, 33), -1), ((9, 5, 64), 1))
    ],
    "ox.GroupNormalizationGradient": lambda: [
        ([f(*s), f(*s), f(*s[1:3])], {"outputs": 3})
        for s in ((3, 2, 4, 63), (2, 12, 1, 30), (5, 2, 2, 1), (2, 3, 2, 60))
    ],
    "GroupNormalization": lambda: [([f(*s), f(s[1]), f(s[1])], {"num_groups": 2}) for s in IMAGES],
    "InstanceNormalization": lambda: [([f(*s), f(s[1]), f(s[1])], {}) for s in IMAGES if s[2:] != (1, 1)],
    "BatchNormalization": lambda: [
        (
            [f(*shape) + 3, f(shape[1]), f(shape[1]), f(shape[1]), np.abs(f(shape[1]))],
            {"training_mode": 1, "momentum": 0.0, "epsilon": 1e-3, "outputs": 3},
        )
        for shape in ((5, 7), (3, 17, 33), (4, 3, 30, 31), (1, 2, 300, 300), (64, 5, 2, 2))
    ],
    "ox.BatchNormalizationGradient": lambda: [
        ([f(*s), f(*s), f(s[1])], {"outputs": 3}) for s in ((30, 8, 9, 7), (64, 40))
    ],
    "Cast": lambda: [
        *flat(to=16),  # float32 to bfloat16
        ([f(9001).astype(bfloat16)], {"to": 1}),
    ],
    **dict.fromkeys(
        ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare"),
        lambda: [
            *reductions(),
            *[([f(6, 5, 30, 20), np.array([0, 2, 3])], {"keepdims": keep}) for keep in (0, 1)],
        ],
    ),
    "GlobalAveragePool": lambda: [([f(6, 5, 30, 20)], {}), ([f(30, 5, 70)], {}), ([f(2, 3, 17, 9, 11)], {})],
    "ReduceMax": reductions,
    "ReduceMin": reductions,
    "Where": where,
    "Trilu": triangles,
    "ox.PhiloxDropout": dropout,
    "Gather": lambda: [
        ([f(70, 33), R.integers(-70, 70, (50, 3))], {}),
        ([f(9, 4, 5), R.integers(0, 9, 500)], {"axis": -3}),
        ([f(90), R.integers(0, 90, 7)], {"axis": 0}),
    ],
    "ox.IndexAdd": lambda: [
        ([f(*shape), R.integers(-size, size, shape[0])], {"size": size})
        for shape, size in (((500, 33), 70), ((40, 3, 5), 1000), ((9, 20), 1))
    ],
    "MatMul": lambda: [
        ([f(*a), f(*b)], {})
        for a, b in (
            ((80, 90), (90, 70)),
            ((3, 200), (200, 900)),
            ((1, 700), (700, 513)),
            ((7, 80, 90), (90, 70)),
            ((3, 80, 90), (3, 90, 70)),
            ((2, 4, 65, 33), (2, 4, 33, 129)),
            ((129, 513), (513, 257)),
        )
    ],
    "Gemm": lambda: [
        ([f(90, 80), f(70, 90), f(70)], {"transA": 1, "transB": 1}),
        ([f(64, 300), f(300, 100)], {}),
        ([f(1, 600), f(500, 600), f(500)], {"transB": 1}),
    ],
    "ox.Linear": lambda: linear(gradient=False),
    "ox.LinearGradient": lambda: linear(gradient=True),
    "Conv": conv,
    "ConvTranspose": lambda: conv(transposed=True),
    "ox.ConvWeights": conv_weights,
    "MaxPool": lambda: [
        ([f(3, 5, 12, 11)], {"kernel_shape": [2, 2], "strides": [2, 2], "outputs": 2}),
        ([f(3, 5, 12, 11)], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "outputs": 2}),
        ([f(3, 5, 40)], {"kernel_shape": [3], "strides": [2], "dilations": [2]}),
    ],
    "ox.MaxPoolGradient": lambda: [
        ([f(3, 5, 12), R.integers(0, 40, (3, 5, 12)) + 40 * np.arange(15).reshape(3, 5, 1)], {"shape": [3, 5, 40]})
    ],
    "ox.AveragePoolGradient": lambda: average_pool_gradient(),
    "ox.BlockwiseAttention": lambda: attention(gradient=False),
    "ox.BlockwiseAttentionGradient": lambda: attention(gradient=True),
}


# those that have another kernel for large arrays are no session
FUSED = [name for name in CASES if getattr(OPS[name], "fused", False) and OPS[name].large is None]


def outputs(result: Any) -> list[Any]:
    return [t.array for t in result] if isinstance(result, tuple) else [result.array]


def call(name: str, arrays: list[Any], attributes: dict[str, Any]) -> list[Any]:
    options = dict(attributes)
    count = options.pop("outputs", 0)
    return outputs(OPS[name](*arrays, outputs=count, **options))


@pytest.fixture(autouse=True)
def for_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "KERNELS", {name: (0, run) for name, (_, run) in compiled.KERNELS.items()})
    for op in OPS.values():
        monkeypatch.setattr(op, "_plans", {})


def test_every_kernel_has_a_case() -> None:
    assert set(CASES) == set(compiled.KERNELS)


@pytest.fixture(autouse=True)
def _the_same_numbers_for_each_test() -> None:
    """Whatever ran before: a sum of a million numbers may come close to 0."""
    R.bit_generator.state = np.random.default_rng(0).bit_generator.state


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_gives_what_numpy_gives(name: str, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    run = compiled.KERNELS[name][1]

    def watched(*given: Any) -> Any:
        result = run(*given)
        used.append(result is not None)
        return result

    monkeypatch.setitem(compiled.KERNELS, name, (0, watched))
    calls = CASES[name]()
    for arrays, attributes in calls:
        got = call(name, arrays, attributes)
        with devices.forced("numpy"):
            expected = call(name, arrays, attributes)
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert compare(a, b).ok, f"{[np.shape(a) for a in arrays]} {attributes}: {compare(a, b)}"
    taken = sum(used)
    # small products stay on NumPy, images of three dimensions on the next executor
    assert taken >= len(calls) - 2 and taken > 0


@pytest.mark.parametrize("name", FUSED)
def test_without_kernels_a_fused_function_is_one_session(name: str) -> None:
    for arrays, attributes in CASES[name]():
        settings = {key: value for key, value in attributes.items() if key != "outputs"}
        result = fused_session.Body().run(OPS[name], arrays, settings)
        with devices.forced("numpy"):
            expected = call(name, arrays, attributes)
        got = list(result) if isinstance(result, tuple) else [result]
        for a, b in zip(got[: len(expected)], expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert compare(a, b).ok, f"{[np.shape(a) for a in arrays]} {attributes}: {compare(a, b)}"


@pytest.mark.parametrize("name", CASES)
def test_the_bits_do_not_depend_on_the_threads(name: str, library: Library) -> None:
    for arrays, attributes in CASES[name]():
        found = []
        for threads in (1, 2, 3):
            library.set_threads(threads)
            found.append(call(name, arrays, attributes))
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(a, b)


def others_sleep() -> bool:
    """Whether the system runs no other thread of this process."""
    paths = [path for path in Path("/proc/self/task").glob("*/stat") if int(path.parent.name) != get_native_id()]
    return all(path.read_text().rpartition(")")[2].split()[0] == "S" for path in paths)


@pytest.mark.parametrize("size", [20_000, 100_000, 3_000_001])
def test_threads_that_sleep_wake_up_for_large_work_alone(size: int, library: Library) -> None:
    """The caller begins alone; what it leaves to others is the rest, none of it twice and all of it."""
    x = f(size)
    library.set_threads(1)
    expected = call("Gelu", [x], {})[0]
    library.set_threads(3)
    call("Gelu", [f(3_000_000)], {})  # starts them
    for _ in range(5):
        wait_until(others_sleep)
        np.testing.assert_array_equal(call("Gelu", [x], {})[0], expected)


@pytest.mark.parametrize("name", CASES)
def test_views_are_read_as_they_are(name: str, library: Library) -> None:
    """Inputs that do not lie in a row."""
    arrays, attributes = CASES[name]()[0]
    expected = call(name, arrays, attributes)
    turned = [a if a is None or not a.ndim else np.repeat(a, 2, axis=-1)[..., ::2] for a in arrays]
    for a, b in zip(call(name, turned, attributes), expected, strict=True):
        assert compare(a, b).ok


@pytest.mark.parametrize("name", ["Exp", "Gelu", "Softmax", "LayerNormalization", "MatMul", "Conv"])
def test_other_types_go_elsewhere(name: str, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: Any) -> Any:
        raise AssertionError("a kernel of float32")

    monkeypatch.setitem(compiled.KERNELS, name, (0, never))
    arrays, attributes = CASES[name]()[0]
    assert call(name, [a.astype(float64) for a in arrays], attributes)[0].dtype == float64


def test_empty_arrays(library: Library) -> None:
    assert OPS["Gelu"](f(0, 3)).shape == (0, 3)
    assert OPS["Softmax"](f(3, 0)).shape == (3, 0)
    assert OPS["MatMul"](f(3, 0), f(0, 4)).array.tolist() == np.zeros((3, 4)).tolist()
    assert OPS["Conv"](f(0, 3, 5, 5), f(2, 3, 3, 3)).shape == (0, 2, 3, 3)


def test_places_that_are_none(library: Library) -> None:
    for place in (70, -71):
        with pytest.raises(OxError, match="Gather"):
            OPS["Gather"](f(70, 33), np.array([0, place]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_visible(value: float, library: Library) -> None:
    for name in (
        *("Softmax", "LogSoftmax", "LayerNormalization", "GroupNormalization", "MatMul", "Conv", "MaxPool"),
        *("ox.WeightedCrossEntropy", "ox.SoftCrossEntropy", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"),
        *("ReduceL1", "ReduceL2", "ReduceSumSquare", "GlobalAveragePool"),
    ):
        arrays, attributes = CASES[name]()[0]
        arrays[0].reshape(-1)[::37] = value
        got = call(name, arrays, attributes)[0]
        with devices.forced("numpy"):
            expected = call(name, arrays, attributes)[0]
        if "CrossEntropy" in name:  # NaN for an infinite score as in PyTorch, where the body's logarithm is infinite
            assert np.array_equal(np.isfinite(got), np.isfinite(expected)), name
        else:
            assert np.array_equal(np.isnan(got), np.isnan(expected)), name


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_tiles_of_a_convolution_spread_nothing(value: float, library: Library) -> None:
    """Winograd's algorithm adds and subtracts neighbours; only what a window reaches may meet what is not finite."""
    x, w, g = f(2, 16, 9, 8), f(20, 16, 3, 3), f(2, 20, 9, 8)
    x[1, 5, 4, 3] = g[0, 7, 2, 6] = value
    pads: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    settings = {**pads, "dilations": [1, 1], "strides": [1, 1], "kernel_shape": [3, 3]}
    for name, arrays, attributes in (
        ("Conv", [x, w], pads),
        ("ConvTranspose", [g, w], pads),
        ("ox.ConvWeights", [x, g], settings),
    ):
        (got,) = call(name, arrays, attributes)
        with np.errstate(all="ignore"), devices.forced("numpy"):
            (expected,) = call(name, arrays, attributes)
        assert np.array_equal(np.isnan(got), np.isnan(expected)), name
        assert np.array_equal(np.isinf(got), np.isinf(expected)), name
        assert np.isfinite(got).mean() > 0.5, name


def test_a_row_that_may_go_nowhere(library: Library) -> None:
    allowed = np.ones((4, 6), bool)
    allowed[2] = False
    y, logs = OPS["ox.BlockwiseAttention"](f(1, 4, 8), f(1, 6, 8), f(1, 6, 8), allowed, outputs=2)
    assert y.array[0, 2].tolist() == [0.0] * 8 and np.isfinite(y.array).all() and logs.array[0, 2] == np.inf


@pytest.mark.parametrize("queries", [1, 70])
def test_a_row_of_minus_infinity_may_go_nowhere(queries: int, library: Library) -> None:
    """Also where it takes the mask, what is added and the order of time together."""
    allowed, bias = np.ones((queries, 200), bool), np.zeros((2, queries, 200), np.float32)
    last = queries - 1
    allowed[last, 130:], bias[1, last, :130] = False, -np.inf
    q, k, v = f(2, queries, 8), f(2, 200, 8), f(2, 200, 8)
    for causal in (0, 1):
        y, logs = OPS["ox.BlockwiseAttention"](q, k, v, allowed, bias, outputs=2, causal=causal)
        assert not y.array[1, last].any() and logs.array[1, last] == np.inf
        assert np.isfinite(y.array).all() and y.array[0].all() and np.isfinite(logs.array[0]).all()
        found = OPS["ox.BlockwiseAttentionGradient"](f(*y.shape), q, k, v, y, logs, allowed, bias, causal=causal)
        assert not found[0].array[1, last].any() and all(np.isfinite(g.array).all() for g in found)


@pytest.mark.parametrize("queries", [1, 70])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_in_attention(value: float, queries: int, library: Library) -> None:
    """In queries, keys, values, or what is added to scores."""
    for place in (0, 1, 2, 4):
        arrays: list[Any] = [f(2, 3, queries, 8), f(2, 3, 90, 8), f(2, 3, 90, 8), allowed(queries, 90), f(queries, 90)]
        arrays[3][:, 1] = False
        arrays[place].reshape(-1)[2 if place < 3 else -1] = value
        with np.errstate(all="ignore"), devices.forced("numpy"):
            expected = call("ox.BlockwiseAttention", arrays, {"outputs": 2})
        got = call("ox.BlockwiseAttention", arrays, {"outputs": 2})
        g = f(*got[0].shape)
        with np.errstate(all="ignore"), devices.forced("numpy"):
            slopes = call("ox.BlockwiseAttentionGradient", [g, *arrays[:3], *expected, *arrays[3:]], {"outputs": 3})
        found = call("ox.BlockwiseAttentionGradient", [g, *arrays[:3], *got, *arrays[3:]], {"outputs": 3})
        for a, b in zip([got[0], *found], [expected[0], *slopes], strict=True):
            # a row that is not a number has no weights at all, as in PyTorch, where NumPy leaves forbidden keys theirs
            assert (np.isnan(a) | ~np.isnan(b)).all(), place
            if place < 3:
                assert np.isfinite(a[1]).all() and np.isfinite(a[0, 1:]).all()
            elif np.isfinite(b).all():
                assert compare(a, b).ok, place


@pytest.mark.parametrize("queries", [2, 70])
def test_attention_reads_heads_as_they_lie(queries: int, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a projection [batch, time, 3·heads·width], without a copy; results lie as the queries do."""

    whole, mask = f(2, 70, 3, 4, 16), allowed(2, 1, 1, 70)
    q, k, v = (whole[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    arrays = [q[:, :, :queries], k[:, ::2], v[:, ::2], mask, np.broadcast_to(f(70), (queries, 70))]
    settings = {"group": 2, "causal": 1}
    expected = call("ox.BlockwiseAttention", [a.copy() for a in arrays], {**settings, "outputs": 2})
    g = f(2, queries, 4, 16).transpose(0, 2, 1, 3)
    inputs = [g, *arrays[:3], *expected, *arrays[3:]]
    slopes = call("ox.BlockwiseAttentionGradient", [a.copy() for a in inputs], {**settings, "outputs": 3})
    for name in ("_rows", "_mask"):
        kept = getattr(compiled_attention, name)

        def viewed(library: Library, x: Any, *rest: Any, kept: Any = kept) -> Any:
            result = kept(library, x, *rest)
            assert rest or np.shares_memory(result, x)
            assert not rest or x is None or np.shares_memory(rest[-1][-1], x)
            return result

        monkeypatch.setattr(compiled_attention, name, viewed)
    got = call("ox.BlockwiseAttention", arrays, {**settings, "outputs": 2})
    found = call("ox.BlockwiseAttentionGradient", inputs, {**settings, "outputs": 3})
    for a, b in zip([*got, *found], [*expected, *slopes], strict=True):
        np.testing.assert_array_equal(a, b)
    for result in (got[0], *found):
        assert result.transpose(0, 2, 1, 3).flags.c_contiguous


def test_the_gradient_of_what_is_added_to_scores(library: Library) -> None:
    """The operator has one, though attention with a learned bias does not use it."""
    q, k, v = (make_tensor(f(2, 3, 7, 8)) for _ in range(3))
    for shape in ((7, 7), (3, 1, 7), (2, 1, 7, 1)):
        bias = make_tensor(f(*shape))
        found = []
        for dtype in (np.float32, float64):
            xs = [make_tensor(x.array.astype(dtype)).requires_grad_() for x in (q, k, v, bias)]
            y = OPS["ox.BlockwiseAttention"](*xs[:3], None, xs[3], outputs=1, causal=1, scale=0.5)
            found.append(ox.autograd.grad((y * y).sum(), xs))
        for a, b in zip(*found, strict=True):
            assert compare(a.array, b.array.astype(np.float32)).ok


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_tensors_of_a_fork(library: Library) -> None:
    """The threads are gone in a forked child; it makes its own."""
    library.set_threads(2)
    x = make_tensor(f(200_000))
    expected = OPS["Gelu"](x).array
    child = os.fork()
    if child == 0:
        same = np.array_equal(OPS["Gelu"](x).array, expected)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_output_of_a_transposed_input_lies_as_the_input_does(library: Library) -> None:
    x = f(60, 50).T
    for name in ("Gelu", "Relu"):
        assert OPS[name](x).array.strides == x.strides
    assert OPS["ox.ReluGradient"](f(60, 50).T, x).array.strides == x.strides
    assert OPS["ox.ReluGradient"](np.broadcast_to(f(1, 50), (60, 50)), f(60, 50)).array.flags.c_contiguous


def test_without_memory_there_is_an_error_and_the_process_goes_on(library: Library) -> None:
    code = (
        "import resource, numpy as np, ox\n"
        "from ox.core.operator import OPS\n"
        "x, g = (np.ones((16, 64, 256, 256), np.float32) for _ in range(2))\n"
        "settings = {'kernel_shape': [5, 5], 'pads': [2] * 4, 'strides': [1, 1], 'dilations': [1, 1]}\n"
        "OPS['ox.ConvWeights'](x[:1, :2, :8, :8].copy(), g[:1, :2, :8, :8].copy(), **settings)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)\n"
        "try:\n"
        "    OPS['ox.ConvWeights'](x, g, **settings)\n"
        "except ox.errors.DeviceError:\n"
        "    print('no memory')\n"
        "print(OPS['ox.ConvWeights'](x[:1, :2, :8, :8].copy(), g[:1, :2, :8, :8].copy(), **settings).shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["no memory", "(2, 2, 5, 5)"]


@pytest.mark.parametrize(
    ("image", "weight", "group"), [((1, 3, 8, 8), (16, 3, 3, 3), 1), ((1, 4, 8, 8), (4, 1, 3, 3), 4)]
)
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (0, 0, 7, 7)])
def test_an_infinite_pixel_is_in_the_sums_that_it_has_a_part_in(
    image: Any, weight: Any, group: int, place: Any, library: Library
) -> None:
    x, w = f(*image), ox.tensor(f(*weight)).requires_grad_()
    x[place] = np.inf
    found = []
    for name in (None, "numpy"):
        w.grad = None
        with devices.forced(name):
            y = ox.nn.functional.conv2d(ox.tensor(x), w, padding=1, groups=group)
            y.backward(ox.tensor(np.cos(np.arange(y.numel(), dtype=np.float32)).reshape(y.shape)))
        found.append(w.grad.array)
    assert np.isinf(found[0]).any() and not np.isnan(found[0]).any()
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["ReduceSum", "GroupNormalization", "LayerNormalization"])
def test_sums_of_a_million_numbers(name: str, library: Library) -> None:
    """The error of a plain float32 sum of each lane would be a hundred times larger."""
    random = np.random.default_rng(0)
    x = random.uniform(0, 1, (1, 1, 1000, 1000)).astype(np.float32)
    ones = np.ones(1 if name == "GroupNormalization" else (1000, 1000), np.float32)
    given, attributes = {
        "ReduceSum": ([x], {"keepdims": 0}),
        "GroupNormalization": ([x, ones, 0 * ones], {"num_groups": 1}),
        "LayerNormalization": ([x, ones, 0 * ones], {"axis": 2}),
    }[name]
    got = call(name, given, attributes)[0]
    with devices.forced("numpy"):
        exact = call(name, [a.astype(float64) for a in given], attributes)[0]
    assert np.abs(got - exact).max() <= 1e-6 * np.abs(exact).max()
