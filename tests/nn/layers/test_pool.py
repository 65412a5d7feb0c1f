"""Pools: against windows written out, undone, and recorded."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from elsewhere import holds_elsewhere
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, ShapeError
from ox.nn import functional as F

R = np.random.default_rng(4)
X = R.normal(size=(2, 3, 7, 9))


def windows(n: int, out: int) -> list[slice]:
    return [slice(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]


@pytest.mark.parametrize("size", [(1, 1), (7, 3), (2, 5), (3, 4), (9, 20)])
def test_adaptive_windows(size: tuple[int, int]) -> None:
    mean = F.adaptive_avg_pool2d(ox.tensor(X), size).numpy()
    most, at = (t.numpy() for t in F.adaptive_max_pool2d(ox.tensor(X), size, return_indices=True))
    flat = X.reshape(2, 3, -1)
    for (i, lines), (j, columns) in product(enumerate(windows(7, size[0])), enumerate(windows(9, size[1]))):
        part = X[:, :, lines, columns]
        assert np.allclose(mean[:, :, i, j], part.mean((2, 3)))
        assert np.array_equal(most[:, :, i, j], part.max((2, 3)))
    assert np.array_equal(np.take_along_axis(flat, at.reshape(2, 3, -1), 2).reshape(most.shape), most)


def test_max_pool_says_where() -> None:
    y, at = F.max_pool2d(ox.tensor(X), 2, return_indices=True)
    assert np.array_equal(
        np.take_along_axis(X.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), 2), y.numpy().reshape(2, 3, -1)
    )
    back = F.max_unpool2d(y, at, 2, output_size=(7, 9)).numpy()
    assert np.array_equal(back[back != 0], X[back != 0])
    assert (back != 0).sum() == y.numel()
    again, _ = F.max_pool2d(ox.tensor(np.where(back == 0, -9.0, back)), 2, return_indices=True)
    assert np.array_equal(again.numpy(), y.numpy())


def test_pools_of_ones() -> None:
    one = ox.ones(1, 1, 5, 5)
    assert np.allclose(F.avg_pool2d(one, 3, 2, 1, count_include_pad=False).numpy(), 1)
    assert np.isclose(F.avg_pool2d(one, 3, 2, 1).numpy()[0, 0, 0, 0], 4 / 9)
    assert np.allclose(F.avg_pool2d(one, 2, divisor_override=1).numpy(), 4)
    assert np.allclose(F.lp_pool2d(one, 2, 2).numpy(), 2)
    assert F.max_pool2d(one, 2, ceil_mode=True).shape == (1, 1, 3, 3)


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_windows_stay_inside(rank: int) -> None:
    pool = getattr(F, f"fractional_max_pool{rank}d")
    x = ox.tensor(R.normal(size=(2, 3, *(9, 8, 7)[:rank])))
    ox.manual_seed(1)
    y, at = pool(x, 2, 4, return_indices=True)
    flat = x.numpy().reshape(2, 3, -1)
    assert np.array_equal(np.take_along_axis(flat, at.numpy().reshape(2, 3, -1), 2).reshape(y.shape), y.numpy())
    other = pool(x, 2, 4)
    assert not np.array_equal(other.numpy(), y.numpy()), "drawn anew"
    ox.manual_seed(1)
    assert np.array_equal(pool(x, 2, 4).numpy(), y.numpy())


def test_errors() -> None:
    x = ox.tensor(X)
    for wrong in (
        lambda: F.max_pool2d(x, 3, padding=2),
        lambda: F.avg_pool2d(x, 0),
        lambda: F.adaptive_avg_pool2d(x, (1, 2, 3)),
    ):
        with pytest.raises(ArgumentError):
            wrong()
    for wrong in (lambda: F.max_pool1d(x, 2), lambda: F.max_pool2d(x, 10), lambda: F.fractional_max_pool2d(x, 2, 8)):
        with pytest.raises(ShapeError):
            wrong()


POOLS: list[Any] = [
    nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, True, False),
    nn.LPPool2d(2, 3, 2), nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((2, 3)), nn.AdaptiveAvgPool2d((None, 1)),
    nn.AdaptiveMaxPool2d(1), nn.AdaptiveMaxPool2d((2, 3)), nn.AdaptiveMaxPool2d((None, 4), return_indices=True),
    nn.AvgPool2d(2, 2, 0, True, divisor_override=3), nn.MaxPool2d(2, return_indices=True),
]  # fmt: skip


@rows("pool", POOLS, ids=repr)
def test_recorded_with_open_sizes(pool: Any) -> None:
    assert holds_elsewhere(pool, (2, 3, 6, 9), (1, 3, 11, 8))
