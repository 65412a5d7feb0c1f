"""Samples of the pools over norms and whole images, and of what undoes a pool."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sample import Sample, call, ints, normal, single

from ox.core.operator import OPS
from ox.ops.nn.window import Window
from ox.tensors.tensor import make_tensor


def _unpool(size: int, **attributes: object) -> Sample:
    x = single(2, 2, size, size)
    y, places = (t.array for t in OPS["MaxPool"](make_tensor(x), outputs=2, **attributes))
    return call(y.astype(np.float64), places, **attributes)


MORE: dict[str, Callable[[], list[Sample]]] = {
    "GlobalMaxPool": lambda: [call(normal(2, 3, 4)), call(normal(2, 3, 4, 5)), call(normal(1, 2, 3, 2, 2))],
    "GlobalLpPool": lambda: [call(normal(2, 3, 4), p=p) for p in (1, 2, 3)] + [call(normal(2, 3, 4, 5))],
    "LpPool": lambda: [
        *[call(normal(2, 2, 7), kernel_shape=[3], strides=[2], p=p) for p in (1, 2, 3)],
        call(normal(2, 2, 6, 5), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], dilations=[1, 2]),
        call(normal(1, 2, 5, 5), kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
        call(normal(1, 2, 4, 4, 4), kernel_shape=[2, 2, 2], strides=[2, 1, 2], p=4),
    ],
    "MaxUnpool": lambda: [
        _unpool(4, kernel_shape=[2, 2], strides=[2, 2]),
        call(normal(1, 1, 2, 2), ints([[[5, 7], [13, 15]]])[None][0], kernel_shape=[2, 2], strides=[2, 2]),
        call(normal(1, 1, 2), ints([[0, 3]]), ints(1, 1, 5), kernel_shape=[2], strides=[2]),
    ],
    "Col2Im": lambda: [
        call(normal(2, 3 * 6, 4 * 4), ints(5, 6), ints(2, 3)),
        call(normal(1, 2 * 4, 3 * 3), ints(5, 6), ints(2, 2), strides=[2, 2], pads=[1, 0, 0, 1]),
        call(normal(1, 4, 3 * 3), ints(5, 6), ints(2, 2), dilations=[2, 3]),
        call(normal(2, 3, 5), ints(7), ints(3)),
    ],
}


def _weights(shape: tuple[int, ...], channels: int, *kernel: int, **options: list[int]) -> Sample:
    rank = len(kernel)
    attributes = {
        "dilations": [1] * rank, "kernel_shape": [*kernel], "pads": [0] * (2 * rank), "strides": [1] * rank, **options,
    }  # fmt: skip
    window = Window(kernel, attributes["strides"], attributes["dilations"], attributes["pads"])
    return call(single(*shape), single(shape[0], channels, *window.outputs(shape[2:])), **attributes)


FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    "ox.ConvWeights": lambda: [
        _weights((3, 2, 9), 4, 3),
        _weights((2, 3, 8, 7), 4, 3, 3, pads=[1, 0, 2, 1], strides=[2, 1]),
        _weights((2, 3, 8, 7), 4, 2, 3, dilations=[2, 1]),
        _weights((2, 64, 6, 6), 5, 3, 3, pads=[1, 1, 1, 1]),
        _weights((2, 70, 6, 5), 6, 1, 1, strides=[2, 2]),
        _weights((1, 2, 9, 9), 3, 7, 7, pads=[3, 3, 3, 3], strides=[2, 2]),
        _weights((2, 2, 4, 5, 4), 3, 2, 2, 3, pads=[0, 1, 0, 0, 1, 1]),
    ],
    "ox.IndexAdd": lambda: [call(single(*shape), ints(3, 0, 3), size=4) for shape in ((3, 2), (3, 2, 2))],
    "ox.CrossEntropy": lambda: [call(single(4, 3), ints(2, 0, 1, 1), ignore_index=i, outputs=2) for i in (-100, 1)],
    "ox.MeanCrossEntropy": lambda: [call(single(4, 3), ints(2, 0, 1, 1), ignore_index=i, outputs=3) for i in (-100, 1)],
    "ox.MeanSmoothedCrossEntropy": lambda: [
        call(single(4, 3), ints(2, 0, 1, 1), smoothing=0.3, ignore_index=i, outputs=3) for i in (-100, 1)
    ],
    "ox.SmoothedCrossEntropyGradient": lambda: [
        call(single(), single(4, 3), ints(2, 0, 1, 1), single(4), smoothing=0.3, ignore_index=i) for i in (-100, 1)
    ],
    "ox.CrossEntropyGradient": lambda: [
        call(single(*g), single(4, 3), ints(2, 0, 1, 1), single(4), ignore_index=i)
        for g in ((4,), ())
        for i in (-100, 1)
    ],
    "ox.Linear": lambda: [
        call(single(*lead, 3), single(4, 3), *bias) for lead in ((2,), (2, 5), (2, 1, 3)) for bias in ((single(4),), ())
    ],
    "ox.LinearGradient": lambda: [
        call(single(*lead, 4), single(*lead, 3), single(4, 3), outputs=2 + bias, bias=bias)
        for lead in ((2,), (2, 5), (2, 1, 3))
        for bias in (0, 1)
    ],
    "ox.GroupNormalizationGradient": lambda: [
        call(single(*shape), single(*shape), single(*shape[1:3]), epsilon=e, outputs=3)
        for shape, e in (((4, 2, 3, 1), 0.1), ((2, 3, 1, 5), 1e-5), ((2, 1, 4, 20), 1e-3))
    ],
    "ox.RMSNormalizationGradient": lambda: [
        call(single(*shape), single(*shape), single(*shape[axis:]), axis=axis, epsilon=e, outputs=2)
        for shape, axis, e in (((4, 6), -1, 0.1), ((2, 3, 5), 1, 1e-5))
    ],
    "ox.BatchNormalizationGradient": lambda: [
        call(single(*shape), single(*shape), single(3), epsilon=e, outputs=3)
        for shape, e in (((4, 3), 0.1), ((2, 3, 5), 1e-5), ((2, 3, 4, 5), 1e-3))
    ],
}
