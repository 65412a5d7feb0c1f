"""What to differentiate an operator at: its ONNX node cases in float64, and more where those are thin.

A sample (sample.py) is a call: inputs in schema order and attributes. Values lie off the kinks (0 of Relu, ties of
Max), for there a finite difference means nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from node_cases import Case, cases
from sample import R, Sample, call, ints, normal, positive, single

from ox.core.operator import OPS
from ox.dtypes import float64, is_floating, onnx_type

_broadcasts = [
    ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1, 3), (4, 1)), ((), (2, 3)), ((2, 3), ()), ((1, 1), (2, 3)), ((0, 3), (3,)),
]  # fmt: skip

_conv: dict[str, Any] = {"group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 1]}
_transposed: dict[str, Any] = {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 1], "output_padding": [1, 0]}

MORE: dict[str, Callable[[], list[Sample]]] = {
    **{
        name: lambda: [call(positive(*a), positive(*b)) for a, b in _broadcasts]
        for name in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min")
    },
    **{name: lambda: [call(positive(2, 3)), call(positive())] for name in ("Sqrt", "Log", "Reciprocal")},
    **{
        name: lambda: [call(normal(2, 3) * 3), call(normal())]
        for name in ("Exp", "Tanh", "Sigmoid", "Erf", "Neg", "Abs")
    },
    "Gelu": lambda: [call(normal(5), approximate=a) for a in ("none", "tanh")],
    "Clip": lambda: [call(normal(3, 4)), call(normal(3, 4), None, np.array(0.5)), call(normal(3, 4), np.array(0.1))],
    "Where": lambda: [call(normal(2, 1) > 0, normal(3), normal(2, 3)), call(np.array(True), normal(2, 1), normal(3))],
    "MatMul": lambda: [
        call(normal(*a), normal(*b))
        for a, b in [
            ((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
            ((2, 1, 2, 3), (5, 3, 4)), ((3,), (2, 3, 4)), ((2, 4, 3), (3,)), ((1, 2, 3), (5, 3, 2)),
        ]
    ],
    "Gemm": lambda: [
        call(
            *(normal(*((3, 2) if ta else (2, 3))), normal(*((4, 3) if tb else (3, 4))), c),
            transA=ta,
            transB=tb,
            alpha=0.5,
            beta=2.0,
        )
        for ta in (0, 1)
        for tb in (0, 1)
        for c in (None, normal(), normal(4), normal(2, 1), normal(2, 4))
    ],
    "Softmax": lambda: [call(normal(2, 3, 4), axis=a) for a in (0, 1, 2, -1)],
    "LogSoftmax": lambda: [call(normal(2, 3, 4), axis=a) for a in (0, 1, 2, -1)],
    "LayerNormalization": lambda: [
        call(normal(2, 3, 4), normal(3, 4), normal(3, 4), axis=1),
        call(normal(2, 3, 4), normal(4)),
        call(normal(2, 3, 4), normal(4), normal(4), epsilon=0.1),
        call(normal(2, 3, 4), normal(4), normal(4), outputs=3),
    ],
    "BatchNormalization": lambda: [
        call(normal(*s), normal(3), normal(3), normal(3), positive(3), **a)
        for s in ((4, 3), (2, 3, 4), (2, 3, 2, 2))
        for a in ({}, {"training_mode": 1, "outputs": 3})
    ],
    **{
        name: lambda: [
            call(normal(2, 3, 4), *axes, keepdims=k)
            for axes in ((), (ints(1),), (ints(-1, 0),), (ints(0, 1, 2),))
            for k in (0, 1)
        ]
        + [call(normal(2, 3), None, noop_with_empty_axes=1), call(normal())]
        for name in ("ReduceSum", "ReduceMean", "ReduceMax")
    },
    "Conv": lambda: [
        call(normal(2, 2, 7), normal(3, 2, 3)),
        call(normal(2, 4, 6, 5), normal(6, 2, 3, 2), normal(6), **_conv),
        call(normal(1, 3, 5, 5), normal(3, 1, 2, 2), group=3, strides=[2, 2]),
        call(normal(2, 2, 6, 5), normal(3, 2, 3, 3), normal(3), auto_pad="SAME_UPPER", strides=[2, 2]),
        call(normal(2, 2, 6, 5), normal(3, 2, 2, 3), auto_pad="SAME_LOWER"),
        call(normal(1, 2, 4, 4, 4), normal(2, 2, 2, 2, 2), strides=[1, 2, 1], pads=[1, 0, 0, 0, 1, 1]),
        call(normal(2, 3, 4, 4), normal(5, 3, 1, 1)),
    ],
    "ConvTranspose": lambda: [
        call(normal(2, 3, 5), normal(3, 2, 3), normal(2)),
        call(normal(2, 4, 4, 3), normal(4, 3, 3, 2), normal(6), **_transposed),
        call(normal(1, 2, 3, 3), normal(2, 2, 2, 2), dilations=[2, 1]),
    ],
    "MaxPool": lambda: [
        call(normal(2, 2, 7), kernel_shape=[3], strides=[2]),
        call(normal(2, 2, 6, 5), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], dilations=[1, 2]),
        call(normal(1, 2, 5, 5), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        call(normal(1, 2, 6, 6), kernel_shape=[3, 3], outputs=2),
    ],
    "AveragePool": lambda: [
        call(normal(2, 2, 7), kernel_shape=[3], strides=[2]),
        call(normal(2, 2, 6, 5), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], count_include_pad=1),
        call(normal(2, 2, 6, 5), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], dilations=[1, 2]),
        call(normal(1, 2, 5, 5), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    ],
    "GlobalAveragePool": lambda: [call(normal(2, 3, 4)), call(normal(2, 3, 4, 5))],
    "Gather": lambda: [
        call(normal(4, 3), ints(0, -1, 0, 2)),
        call(normal(4, 3), ints([0, 1], [2, 2]), axis=1),
        call(normal(2, 4, 3), np.array(1), axis=-2),
        call(normal(5), np.array(3)),
    ],
    "GatherElements": lambda: [
        call(normal(3, 4), ints([0, 0, 1], [2, -1, 1]), axis=1),
        call(normal(3, 4), ints([0, 0, 1], [2, 2, 1]), axis=0),
    ],
    "ScatterElements": lambda: [
        call(normal(3, 4), ints([0, 3, 1], [2, -1, 1]), normal(2, 3), axis=1),
        call(normal(3, 4), ints([0, 0, 0], [2, 2, 2]), normal(2, 3), reduction="add"),
    ],
    "Concat": lambda: [call(normal(2, 3), normal(2, 1), axis=1), call(normal(2), normal(3), normal(1), axis=-1)],
    "Split": lambda: [call(normal(2, 5), ints(2, 3), axis=1, outputs=2), call(normal(4, 2), num_outputs=2, outputs=2)],
    "Slice": lambda: [
        call(normal(5, 4), ints(1), ints(4)),
        call(normal(5, 4), ints(-1, 0), ints(-6, 3), ints(0, 1), ints(-2, 2)),
        call(normal(5, 4), ints(3), ints(1000), ints(-2)),
    ],
    "Pad": lambda: [
        call(normal(2, 3), ints(1, 0, 0, 2)),
        call(normal(2, 3), ints(1, 2), np.array(0.5), ints(-1)),
        call(normal(4, 3), ints(-1, 0, 1, 2)),
        *[call(normal(4, 3), ints(1, 2, 2, 1), mode=m) for m in ("edge", "reflect", "wrap")],
    ],
    "Expand": lambda: [call(normal(3, 1), ints(2, 1, 4)), call(normal(1), ints(3)), call(normal(), ints(2, 2))],
    "Transpose": lambda: [call(normal(2, 3, 4)), call(normal(2, 3, 4), perm=[1, 2, 0])],
    "Cast": lambda: [call(normal(2, 3), to=onnx_type(float64))],
}  # fmt: skip

_seed = (np.array(1234567890123, np.uint64), np.array(2**34 - 2, np.uint64))

# What to call the functions of the domain ``ox`` with; a function without a line here fails its test
FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    **{
        name: lambda: [call(*_seed, ints(*shape), outputs=2) for shape in ((7,), (), (3, 5), (0, 2), (1000,))]
        for name in ("ox.Philox", "ox.RandomUniform", "ox.RandomNormal")
    },
    "ox.GeluGradient": lambda: [call(single(3, 4), single(3, 4), approximate=a) for a in ("none", "tanh")],
    **{
        name: lambda: [call(single(3, 4), single(3, 4), axis=a) for a in (0, -1)]
        for name in ("ox.SoftmaxGradient", "ox.LogSoftmaxGradient")
    },
    **{
        name: lambda: [call(single(3, 4), single(3, 4))]
        for name in ("ox.ReluGradient", "ox.TanhGradient", "ox.SigmoidGradient")
    },
    "ox.MaxPoolGradient": lambda: [call(single(1, 2, 2), ints(3, 1, 6, 7).reshape(1, 2, 2), shape=[1, 2, 4])],
    "ox.AveragePoolGradient": lambda: [
        call(single(1, 2, 3, 3), shape=[1, 2, 5, 6], **attributes)
        for attributes in (
            {"kernel_shape": [2, 3], "strides": [2, 2], "dilations": [1, 1], "pads": [0, 1, 1, 0], "ceil_mode": 0},
            {
                "kernel_shape": [2, 2],
                "strides": [2, 2],
                "dilations": [1, 2],
                "pads": [0, 0, 1, 2],
                "ceil_mode": 1,
                "count_include_pad": 1,
            },
        )
    ],
    "ox.BlockwiseAttention": lambda: [
        *[
            call(single(2, 3, 4), single(2, 3, 4), single(2, 3, 5), scale=0.5, causal=causal, outputs=2)
            for causal in (0, 1)
        ],
        call(
            single(2, 4, 3, 4),
            single(2, 2, 6, 4),
            single(2, 2, 6, 5),
            np.arange(6) < 5,
            single(4, 3, 1),
            np.abs(single(2, 1, 3, 6)),
            scale=0.5,
            causal=1,
            group=2,
            outputs=2,
        ),
    ],
    "ox.BlockwiseAttentionGradient": lambda: (
        [
            call(
                single(2, 3, 5),
                single(2, 3, 4),
                single(2, 3, 4),
                single(2, 3, 5),
                single(2, 3, 5),
                single(2, 3),
                scale=0.5,
                causal=causal,
                outputs=3,
            )
            for causal in (0, 1)
        ]
        + [
            call(
                single(4, 3, 5),
                single(4, 3, 4),
                single(2, 6, 4),
                single(2, 6, 5),
                single(4, 3, 5),
                single(4, 3),
                np.arange(6) < 5,
                single(4, 3, 1),
                np.abs(single(3, 6)),
                scale=0.5,
                group=2,
                outputs=3,
            )
        ]
    ),
    "ox.LayerNormalizationGradient": lambda: [
        call(single(2, 3, 4), single(2, 3, 4), single(4), single(2, 3, 1), single(2, 3, 1), outputs=3),
        call(single(2, 3, 4), single(2, 3, 4), single(3, 4), single(2, 1, 1), single(2, 1, 1), axis=1, outputs=3),
    ],
}

# Families have files of their own beside this one: samples_<family>.py, each with a MORE and, if need be, a FUNCTIONS
for _file in sorted(Path(__file__).parent.glob("samples_*.py")):
    _family = import_module(_file.stem)
    MORE.update(_family.MORE)
    FUNCTIONS.update(getattr(_family, "FUNCTIONS", {}))

# ONNX node cases that no finite difference can be taken at, with the reason
NOT_SMOOTH: dict[str, str] = {
    "test_dropout_random_old": "an attribute of opset 11, which reading a file turns into an input",
    **{
        f"test_attention_4d_with_past_and_present_qk_matmul_bias_{n}d_mask_causal": "scores of -inf are an output"
        for n in (3, 4)
    },
    "test_reduce_max_empty_set": "the greatest of no values has no derivative",
    "test_reduce_min_empty_set": "the smallest of no values has no derivative",
    "test_reduce_log_sum_empty_set": "no values sum to 0, whose logarithm has no derivative",
    "test_acos": "some values lie so near 1 that a step leaves the domain",
    "test_asin": "some values lie so near 1 that a step leaves the domain",
    "test_roialign_mode_max": "the largest of weighted corners has no gradient in ox",
    "test_atanh": "some values lie so near 1 that a step leaves the domain",
}


def seeded(name: str, make: Callable[[], list[Sample]]) -> list[Sample]:
    """Samples of the same numbers whatever was made before them."""
    R.bit_generator.state = np.random.default_rng(crc32(name.encode())).bit_generator.state
    return make()


FUNCTIONS = {name: partial(seeded, name, make) for name, make in FUNCTIONS.items()}


def samples(name: str) -> list[Sample]:
    """Ours, and ONNX's cases that have floating inputs, moved a little off their round numbers."""
    return seeded(name, lambda: _samples(name))


def _samples(name: str) -> list[Sample]:
    made = [_from_case(case) for case in cases(name)[0] if case.name not in NOT_SMOOTH]
    return [s for s in made if s is not None] + MORE.get(name, list)()


def _from_case(case: Case) -> Sample | None:
    schema = OPS[case.op].schema
    if not OPS[case.op].rules:
        return Sample(case.inputs, case.attributes, len(case.outputs), case.name)
    inputs = []
    for i, x in enumerate(case.inputs):
        if x is None or not is_floating(x.dtype) or float64 not in schema.allowed(schema.input_at(i).type):
            inputs.append(x)
            continue
        if not np.isfinite(x.astype(float64)).all():
            return None
        inputs.append(x.astype(float64) + R.uniform(0.01, 0.03, x.shape))
    return Sample(tuple(inputs), case.attributes, len(case.outputs), case.name)
