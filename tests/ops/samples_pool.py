"""Samples of the pools over norms and whole images, and of what undoes a pool."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sample import Sample, call, ints, normal, single

from ox.ops.operator import OPS
from ox.tensor import Tensor


def _unpool(size: int, **attributes: object) -> Sample:
    x = single(2, 2, size, size)
    y, places = (t.data for t in OPS["MaxPool"](Tensor(x), outputs=2, **attributes))
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
