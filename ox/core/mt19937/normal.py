"""Normal numbers, by Box and Muller (1958) from pairs of uniform ones.

PyTorch has two ways. A contiguous tensor of 16 elements or more is filled with uniform numbers first; eight and the
eight behind them then become eight pairs of normal numbers, and if the count is no multiple of 16, the last 16 are
drawn anew over what was there. In float32 that way's logarithm, sine and cosine are those of Cephes (S. Moshier), in
AVX2 with fused multiply-adds, which the float64 arithmetic here repeats (all but about one number in 10^8, where a sum
rounded twice differs). All other tensors are filled one by one in float64, with the second of a pair kept for later.
"""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.core.mt19937.uniform import fused
from ox.core.mt19937.words import Words
from ox.dtypes import DType

LANES = 8
BLOCK = 2 * LANES
CHUNK = 1024  # blocks; their buffers stay in a core's own cache


def _single(*numbers: float) -> tuple[float, ...]:
    """Numbers as float32 holds them."""
    return tuple(float(np.float32(number)) for number in numbers)


_LOG = _single(
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_LOG_2 = _single(-2.12194440e-4, 0.693359375)
_SQRT_HALF = np.float32(0.707106781186547524)
_QUARTER = _single(-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)  # minus pi/4, in three parts
_SIN = _single(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = _single(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def fill(words: Words, count: int, dtype: DType, mean: float = 0.0, std: float = 1.0) -> NDArray[Any]:
    """[count] for a contiguous tensor of 16 or more."""
    rest = count % BLOCK
    if dtype == np.float64:
        drawn: Any = words.doubles(count)
    elif dtype == np.float32:
        drawn = words.floats(count)
    else:
        drawn = np.empty(count, np.float32)  # drawn block by block, so the last ones only once
        drawn[: count - rest] = words.floats(count - rest)
    pairs = _pairs_double if dtype == np.float64 else _pairs_single
    pairs(drawn[: count - rest].reshape(-1, 2, LANES), mean, std)
    if rest:
        last = drawn[-BLOCK:]
        last[:] = words.doubles(BLOCK) if dtype == np.float64 else words.floats(BLOCK)
        pairs(last.reshape(-1, 2, LANES), mean, std)
    return drawn.astype(dtype, copy=False)


def each(words: Words, count: int, mean: float = 0.0, std: float = 1.0) -> NDArray[np.float64]:
    """[count] float64, one by one."""
    kept = [] if words.spare is None or not count else [words.spare]
    pairs = (count - len(kept) + 1) // 2
    if kept:
        words.spare = None
    uniform = words.doubles(2 * pairs)
    radius = np.sqrt(-2.0 * np.log1p(-uniform[1::2]))
    angle = (2.0 * pi) * uniform[::2]
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
    drawn = np.concatenate([kept, both])
    if len(drawn) > count:
        words.spare = float(drawn[-1])
    return fused(drawn[:count], std, mean)


def _pairs_double(blocks: NDArray[np.float64], mean: float, std: float) -> None:
    radius = np.sqrt(-2.0 * np.log(1 - blocks[:, 0]))
    angle = (2.0 * pi) * blocks[:, 1]
    blocks[:, 0] = fused(radius * np.cos(angle), std, mean)
    blocks[:, 1] = fused(radius * np.sin(angle), std, mean)


def _pairs_single(blocks: NDArray[np.float32], mean: float, std: float) -> None:
    std, mean = float(np.float32(std)), float(np.float32(mean))
    for start in range(0, len(blocks), CHUNK):
        part = blocks[start : start + CHUNK]
        radius = np.sqrt(np.float32(-2) * _log(np.float32(1) - part[:, 0]))
        for place, wave in enumerate(_cos_sin(part[:, 1] * np.float32(2 * pi))):
            wave *= radius
            part[:, place] = wave if (mean, std) == (0.0, 1.0) else wave.astype(np.float64) * std + mean


def _add_product(a: Any, b: Any, c: Any) -> Any:
    """a b + c in float32, rounded once: the product of two float32 numbers is exact in float64. `a` is float64, and
    so is the result, which holds a float32 number."""
    a = a * b
    a += c
    return a.astype(np.float32).astype(np.float64)


def _polynomial(x: Any, factors: Any) -> Any:
    y = _add_product(x, factors[0], factors[1])
    for factor in factors[2:]:
        y = _add_product(y, x, factor)
    return y


def _log(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The natural logarithm of numbers in (0, 1]."""
    part, power = np.frexp(x)
    small = part < _SQRT_HALF
    exponent = (power - small).astype(np.float64)
    part = part.astype(np.float64)
    x_ = np.where(small, part + part, part) - 1.0  # exact
    square = (x_ * x_).astype(np.float32).astype(np.float64)
    y = _polynomial(x_, _LOG)
    y = (y * x_).astype(np.float32).astype(np.float64)
    y = _add_product(y, square, (exponent * _LOG_2[0]).astype(np.float32))
    y = _add_product(square, -0.5, y)
    total = (x_ + y).astype(np.float32)
    return (exponent * _LOG_2[1] + total).astype(np.float32)


def _cos_sin(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosine and sine of numbers in [0, 2 pi)."""
    octant = (x * np.float32(4 / pi)).astype(np.int32)
    octant = (octant + 1) & ~1
    count = octant.astype(np.float64)
    angle: Any = x.astype(np.float64)
    for part in _QUARTER:
        angle = _add_product(count, part, angle)
    square = (angle * angle).astype(np.float32).astype(np.float64)
    cos = (_polynomial(square, _COS) * square).astype(np.float32).astype(np.float64)
    cos = _add_product(cos, square, -0.5 * square).astype(np.float32) + np.float32(1)
    sin = (_polynomial(square, _SIN) * square).astype(np.float32).astype(np.float64)
    sin = _add_product(sin, angle, angle).astype(np.float32)
    swap = (octant & 2) != 0
    first, second = np.where(swap, sin, cos), np.where(swap, cos, sin)
    # the cosine is below zero in octants 2 to 5, the sine from 4 on
    first = np.where(((octant - 2) & 4) == 0, -first, first)
    second = np.where((octant & 4) != 0, -second, second)
    return first, second
