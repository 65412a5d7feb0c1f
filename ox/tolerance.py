"""The one table of numerical tolerances: tests, export's proof and the server's batch proof all read it here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ox.dtypes import NARROW

# What values came through on their way: a narrower type, or a rounding that makes an absolute difference (quantization)
Through = np.dtype[Any] | float | None

# dtype -> (absolute, relative to max|expected|)
TABLE: dict[np.dtype[Any], tuple[float, float]] = {
    np.dtype(np.float64): (1e-9, 1e-9),
    np.dtype(np.float32): (1e-5, 1e-4),
    np.dtype(np.float16): (1e-2, 1e-2),
    np.dtype(ml_dtypes.bfloat16): (4e-2, 4e-2),
}

# How many times as far as rounding in the same graph moved an element it may be off, besides: where a graph amplifies
AMPLIFICATION = 4.0


@dataclass(frozen=True)
class Difference:
    """How far two arrays are apart, and how far they may be."""

    max_abs: float
    allowed: float

    @property
    def ok(self) -> bool:
        return self.max_abs <= self.allowed


def rule(dtype: np.dtype[Any], through: Through = None) -> tuple[float, float]:
    """The row of the table for values of a type, or of the narrower type that they came `through` on their way, as they
    do in mixed precision; or with the absolute difference that quantization makes."""
    if isinstance(through, float):
        return max(TABLE[dtype][0], through), TABLE[dtype][1]
    return TABLE[dtype] if through is None else max(TABLE[dtype], TABLE.get(through, (0.0, 0.0)))


def allowed(expected: np.ndarray[Any, Any], through: Through = None) -> float:
    """The largest absolute difference from `expected` that counts as equal; 0 for integers, booleans and strings."""
    if expected.dtype not in TABLE:
        return 0.0
    absolute, relative = rule(expected.dtype, through)
    wide = expected if expected.dtype.itemsize >= 4 else expected.astype(np.float32)  # bfloat16 warns of NaN
    return absolute + relative * _largest(wide)


def _largest(values: np.ndarray[Any, Any]) -> float:
    """The largest absolute value among the finite ones; 0 where there are none."""
    if not values.size:
        return 0.0
    largest = max(float(values.max()), -float(values.min()))  # NaN if any value is
    if np.isfinite(largest):
        return largest
    return _largest(values[np.isfinite(values)])


def compare_amplified(
    got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], moved: np.ndarray[Any, Any], through: Through = None
) -> Difference:
    """The difference of the element that is furthest off, measured by what it may be off: as in `compare`, and
    `AMPLIFICATION` times as far as rounding `moved` it. Infinities and NaN are as in `compare`."""
    a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    rest = compare(np.where(finite, 0, got).astype(got.dtype), np.where(finite, 0, expected).astype(got.dtype))
    if not rest.ok or not finite.any():
        return rest
    delta = np.abs(a[finite] - b[finite])
    limits = allowed(expected, through) + AMPLIFICATION * moved[finite]
    worst = int(np.argmax(delta / limits))
    return Difference(float(delta[worst]), float(limits[worst]))


def compare(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], through: Through = None) -> Difference:
    """The largest absolute difference. NaN equals NaN, an infinity itself; another shape is infinitely far. `through`
    as in `rule`."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return Difference(float("inf"), allowed(expected, through))
    if expected.dtype not in TABLE:
        if expected.dtype in NARROW:  # NumPy compares them without NaN
            got, expected = got.astype(np.float32), expected.astype(np.float32)
        same = np.array_equal(got, expected, equal_nan=expected.dtype.kind == "f")
        return Difference(0.0 if same else float("inf"), 0.0)
    if np.all(got == expected):  # most often, and cheap beside copies in float64
        return Difference(0.0, allowed(expected, through))
    a, b = got.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        delta = np.where(same, 0.0, np.abs(a - b))
    delta = np.where(np.isnan(delta), np.inf, delta)
    return Difference(float(delta.max()) if delta.size else 0.0, allowed(expected, through))
