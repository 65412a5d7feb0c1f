"""The gradient of a convolution's weights: three ways in operators and one in columns, all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from rows import rows

from ox import devices
from ox.ops.nn.conv_weight_gradient import ConvWeights
from ox.ops.nn.window import Window
from ox.tensors.tensor import make_tensor
from ox.tolerance import compare

CASES: list[tuple[tuple[int, ...], int, dict[str, Any]]] = [
    ((3, 64, 18, 17), 8, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ((9, 12, 18, 17), 8, {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((40, 70, 4, 4), 30, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "dilations": [2, 1]}),
    ((6, 70, 9, 9), 30, {"kernel_shape": [1, 1], "strides": [2, 2]}),
    ((4, 3, 60, 60), 5, {"kernel_shape": [7, 7], "pads": [3, 3, 3, 3], "strides": [2, 2]}),
    ((7, 8, 700), 5, {"kernel_shape": [5], "dilations": [3]}),
    ((2, 8, 13, 13, 13), 5, {"kernel_shape": [2, 3, 2], "pads": [1, 0, 0, 0, 1, 1]}),
]


@rows(("shape", "channels", "options"), CASES)
def test_large_arrays_give_what_the_body_gives(shape: Any, channels: int, options: dict[str, Any]) -> None:
    random, rank = np.random.default_rng(0), len(shape) - 2
    attributes = {"dilations": [1] * rank, "pads": [0] * (2 * rank), "strides": [1] * rank, **options}
    window = Window(**{"kernel" if k == "kernel_shape" else k: v for k, v in attributes.items()})
    x = make_tensor(random.standard_normal(shape).astype(np.float32))
    g = make_tensor(random.standard_normal((shape[0], channels, *window.outputs(shape[2:]))).astype(np.float32))
    assert x.array.size >= 1 << 15, "so large that the kernel for large arrays runs"
    fast = ConvWeights(x, g, **attributes)
    with devices.forced("numpy"):
        slow = ConvWeights(x, g, **attributes)
    assert fast.array.shape == (channels, shape[1], *options["kernel_shape"])
    assert compare(fast.array, slow.array).ok
    assert not np.shares_memory(fast.array, x.array)


def test_no_images() -> None:
    x, g = make_tensor(np.zeros((0, 2, 5, 5), np.float32)), make_tensor(np.zeros((0, 3, 3, 3), np.float32))
    found = ConvWeights.large(np, x.array, g.array, dilations=[1, 1], kernel_shape=[3, 3], pads=[0] * 4, strides=[1, 1])  # type: ignore[misc]
    assert found.shape == (3, 2, 3, 3)
    assert not found.any()
