"""The gradient of BatchNormalization: by operators and, for large arrays, by some channels at a time."""

from __future__ import annotations

import numpy as np
from rows import rows

from ox import devices
from ox.ops.nn.batch_norm_gradient import BatchNormalizationGradient, by_channels
from ox.tensors.tensor import make_tensor
from ox.tolerance import compare


@rows("shape", [(8, 5, 40, 41), (600, 70), (3, 300, 60), (2, 3, 30, 20, 11), (70, 1, 500)])
def test_large_arrays_give_what_the_body_gives(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    g, x = (make_tensor((random.standard_normal(shape) * 2 + 1).astype(np.float32)) for _ in range(2))
    scale = make_tensor(random.standard_normal(shape[1]).astype(np.float32))
    assert x.array.size >= 1 << 15, "so large that the kernel for large arrays runs"
    fast = BatchNormalizationGradient(g, x, scale, epsilon=1e-3)
    with devices.forced("numpy"):
        slow = BatchNormalizationGradient(g, x, scale, epsilon=1e-3)
    for a, b in zip(fast, slow, strict=True):
        assert a.array.shape == b.array.shape
        assert compare(a.array, b.array).ok


def test_in_float64_both_are_the_same() -> None:
    random = np.random.default_rng(1)
    g, x = random.standard_normal((2, 4, 5, 3, 2))
    scale = random.standard_normal(5)
    fast = by_channels(np, g, x, scale)
    slow = BatchNormalizationGradient(make_tensor(g), make_tensor(x), make_tensor(scale))
    for a, b in zip(fast, slow, strict=True):
        assert compare(a, b.array).ok
