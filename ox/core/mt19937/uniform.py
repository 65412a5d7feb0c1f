"""Floats drawn one by one: uniform, exponential, Cauchy, geometric and Bernoulli."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.core.mt19937.words import Words
from ox.dtypes import DType


def fused(a: Any, b: float, c: float) -> Any:
    """a b + c, rounded once, of float64 numbers, as the processor's fused multiply-add gives it: the product's and the
    sum's rounding errors (Dekker 1971, Knuth 1969) are added to the rounded sum."""
    if b == 1.0:
        return a + c
    product = a * b
    high_a, high_b = _upper(a), float(_upper(np.float64(b)))
    low_a, low_b = a - high_a, b - high_b
    error = low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)
    total = product + c
    part = total - product
    return total + ((product - (total - part)) + (c - part) + error)


def _upper(x: Any) -> Any:
    scaled = x * 134217729.0  # 2^27 + 1
    return scaled - (scaled - x)


def uniform(words: Words, count: int, dtype: DType, low: float = 0.0, high: float = 1.0) -> NDArray[Any]:
    """[count] in [low, high): float64 from 53 bits, the smaller types from 24 in float32, then rounded. What rounding
    brings to `high` becomes `low`."""
    if dtype == np.float64:
        drawn: Any = words.doubles(count)
        if (low, high) != (0.0, 1.0):
            drawn = fused(drawn, high - low, low)
    else:
        drawn = words.floats(count)
        if (low, high) != (0.0, 1.0):
            start, stop = np.float32(low), np.float32(high)
            # of 24 bits each, so the product is exact in float64
            drawn = (drawn.astype(np.float64) * np.float64(stop - start) + np.float64(start)).astype(np.float32)
        if dtype == np.float32 and low == 0:
            return drawn
    drawn = drawn.astype(dtype)
    drawn[drawn == np.asarray(high).astype(dtype)] = np.asarray(low).astype(dtype)
    return drawn


def exponential(words: Words, count: int, rate: float = 1.0) -> NDArray[np.float64]:
    """-log(1 - u) / rate."""
    return -1.0 / rate * np.log1p(-words.doubles(count))


def cauchy(words: Words, count: int, median: float, sigma: float) -> NDArray[np.float64]:
    """median + sigma tan(pi (u - 1/2))."""
    return fused(np.tan(np.pi * (words.doubles(count) - 0.5)), sigma, median)


def geometric(words: Words, count: int, p: float) -> NDArray[np.float64]:
    """log(u) / log(1 - p), rounded up."""
    with np.errstate(divide="ignore"):
        return np.ceil(np.log(words.doubles(count)) / np.log1p(-p))


def bernoulli(words: Words, count: int, p: float) -> NDArray[np.bool_]:
    """u < p, with u of 53 bits whatever the type of the result. (Earlier releases of PyTorch drew these by Intel's
    library on Intel's processors; 2.13 draws them here on every processor.)"""
    return words.doubles(count) < p
