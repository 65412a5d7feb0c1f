"""The best numbers of rows on a GPU are those of a stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.top_k import MOST_BEST, best_from_words, best_of_rows
from ox.dtypes import bfloat16

pytestmark = pytest.mark.gpu


def best(rows: np.ndarray, k: int, sums: bool = False) -> tuple[np.ndarray, ...]:
    words = cupy().zeros(len(rows) * (k + 1), np.int64)
    numbers = rows.view(np.uint16) if rows.dtype == bfloat16 else rows
    best_of_rows(cupy().asarray(numbers), words, k, sums, rows.dtype)
    return best_from_words(words.get().reshape(len(rows), k + 1), k)


def check(rows: np.ndarray, k: int) -> None:
    columns, numbers, _ = best(rows, k)
    whole = rows.astype(np.float32)
    keys = np.where(np.isnan(whole), -np.inf, -whole)
    order = np.lexsort((np.broadcast_to(np.arange(rows.shape[1]), rows.shape), keys, ~np.isnan(whole)))[:, :k]
    np.testing.assert_array_equal(columns, order)
    np.testing.assert_array_equal(numbers, np.take_along_axis(whole, order, 1))


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32])
@pytest.mark.parametrize(
    ("width", "k"), [(1, 1), (7, 7), (255, 3), (256, 128), (257, 40), (5000, 1), (5000, MOST_BEST)]
)
def test_the_best_are_those_of_a_stable_sort(dtype: type, width: int, k: int) -> None:
    """Numbers of few digits, many of which are equal."""
    check(np.random.default_rng(width).standard_normal((3, width)).round(1).astype(dtype), k)


def test_special_numbers() -> None:
    rows = np.zeros((6, 700), np.float32)
    rows[1, ::2] = -0.0
    rows[2, 600] = rows[2, 30] = np.nan
    rows[3] = -np.inf
    rows[4, 5], rows[4, 7] = np.inf, 1e-40
    rows[5] = np.float32(-1e-40)
    check(rows, 6)


def test_the_best_of_a_row_lie_with_few_threads() -> None:
    """More of them than there is room for are from the smallest best number of the threads on."""
    rows = np.random.default_rng(0).standard_normal((4, 20_000)).astype(np.float32)
    rows[:, np.arange(20_000) % 256 < 30] += 100
    rows[1, 0] = rows[2, [0, 7]] = rows[3, 7] = np.nan
    check(rows, 50)


def test_sums() -> None:
    rows = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float16) * np.float16(5)
    exact = rows.astype(np.float64)
    sums = np.exp(exact - exact.max(1, keepdims=True)).sum(1)
    np.testing.assert_allclose(best(rows, 2, sums=True)[2], sums, rtol=1e-13)
