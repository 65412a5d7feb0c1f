"""Sums along any axis round as little as those along the last, where NumPy adds in pairs."""

from __future__ import annotations

import numpy as np
import pytest

import ox
from ox import devices


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("length", [256, 4096])
def test_a_long_sum_along_a_leading_axis(axis: int, length: int) -> None:
    """Less rounding than one row after the other."""
    shape = (length, 40) if axis == 0 else (3, length, 40)
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    exact = x.astype(np.float64).sum(axis)
    one_by_one = np.abs(np.add.accumulate(x, axis).take(-1, axis) - exact).max()
    with devices.forced("numpy"):
        ours = np.abs(ox.tensor(x).sum(axis).numpy() - exact).max()
        kept = ox.tensor(x).sum(axis, keepdim=True)
    assert ours < 0.7 * one_by_one
    assert kept.shape == tuple(1 if i == axis else n for i, n in enumerate(shape))


@pytest.mark.parametrize("shape", [(255, 4), (0, 4), (272, 0), (272, 4), (256,)])
def test_odd_sizes(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).random(shape, dtype=np.float32)
    for array in (x, np.asfortranarray(x), x[::2]):
        np.testing.assert_allclose(ox.tensor(array).sum(0).numpy(), array.astype(np.float64).sum(0), rtol=1e-6)
