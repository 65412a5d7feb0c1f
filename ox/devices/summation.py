"""Sums whose rounding does not grow with their length, for every axis and layout.

NumPy adds in pairs only along the axis whose elements lie next to each other in memory; along any other one it adds one
row after the other, and a GPU's thread adds what falls to it in the same way: a float32 sum of a million numbers then
holds three digits. Here blocks of `BLOCK` rows are added in the array's type and the blocks' sums in float64 (blocked
summation: Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 4.2).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

__all__ = ["matmul", "mean_over", "product_over", "sum_into", "sum_over"]

XP = Any  # numpy or cupy
Array = Any  # numpy.ndarray or cupy.ndarray

BLOCK = 32  # rows that are added one after the other
LINE = 4096  # neighbours that a GPU adds up at once
SMALL = 16384  # elements up to which float64 throughout takes no longer
WIDE = 256  # elements from which a row is worth a loop of its own
NARROW = 8  # columns of so few elements are added column by column
TERMS = 1024  # of a product's sums that are left to BLAS; some add them one after the other in a small product
SMALL_PRODUCT = 4096  # elements; in larger ones, and in the product of two vectors, BLAS adds up several sums at once


def sum_over(xp: XP, x: Array, axes: tuple[int, ...], keepdims: int = 0) -> Array:
    """The sum of an array over axes, in its type. Those of float16 and bfloat16 come as float32."""
    if x.dtype.kind != "f":
        return x.sum(axis=axes, keepdims=bool(keepdims), dtype=x.dtype)
    total = _total(xp, x, axes, keepdims)
    return total if total.dtype == x.dtype else total.astype(x.dtype)


def sum_into(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """Write the sum of a NumPy array over axes into another one."""
    out[...] = sum_over(np, x, axes)


def mean_over(xp: XP, x: Array, axes: tuple[int, ...], keepdims: int = 0) -> Array:
    """The mean of a float32 or float64 array over axes, in its type; NaN of nothing."""
    total = _total(xp, x, axes, keepdims)
    return (total / total.dtype.type(prod([x.shape[a] for a in axes]))).astype(x.dtype, copy=False)


def product_over(xp: XP, x: Array, axes: tuple[int, ...], keepdims: int = 0) -> Array:
    """The product of an array over axes, in its type: of float32 by way of float64, which holds what is between."""
    if x.dtype != np.float32:
        return x.prod(axis=axes, keepdims=bool(keepdims), dtype=x.dtype)
    return x.prod(axis=axes, keepdims=bool(keepdims), dtype=np.float64).astype(np.float32)


def matmul(xp: XP, A: Array, B: Array) -> Array:
    """numpy.matmul. A float32 product with long sums on the CPU is added up of shorter ones in float64."""
    terms = A.shape[-1]
    if xp is not np or terms <= TERMS or A.dtype != np.float32:
        return xp.matmul(A, B)
    rows, columns = A.shape[-2] if A.ndim > 1 else 1, B.shape[-1] if B.ndim > 1 else 1
    step = TERMS if 1 < rows * columns <= SMALL_PRODUCT else 16 * TERMS
    axis = max(B.ndim - 2, 0)
    total = np.float64(0)
    for low in range(0, terms, step):
        part = slice(low, low + step)
        total = total + np.matmul(A[..., part], B[(*(slice(None),) * axis, part)])
    return total.astype(np.float32)


def _total(xp: XP, x: Array, axes: tuple[int, ...], keepdims: int) -> Array:
    """The sum over axes: in float64 if it is of many numbers, else in the array's type."""
    if xp is np and x.flags.c_contiguous and axes == tuple(range(x.ndim - len(axes), x.ndim)):
        return x.sum(axis=axes, keepdims=bool(keepdims))  # in pairs
    count = prod([x.shape[a] for a in axes])
    if len(set(axes)) < len(axes) or x.size <= SMALL:  # an axis twice is an error, which NumPy explains
        return x.sum(axis=axes, keepdims=bool(keepdims), dtype=np.float64 if count > BLOCK else x.dtype)
    if count <= BLOCK:
        return x.sum(axis=axes, keepdims=bool(keepdims), dtype=x.dtype)
    shape = [1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes]
    repeated = [a for a in axes if not x.strides[a]]  # a broadcast axis holds the same numbers again
    if repeated:
        times = prod([x.shape[a] for a in repeated])
        x = x[tuple([slice(1) if a in repeated else slice(None) for a in range(x.ndim)])]
    # the axes in their order in memory, the nearest last
    order = sorted(range(x.ndim), key=lambda a: -abs(x.strides[a]))
    total = _in_memory_order(xp, x.transpose(order), [a in axes for a in order])
    left = [a for a in order if a not in axes]
    total = total.reshape([x.shape[a] for a in left])
    if left != sorted(left):
        total = total.transpose([left.index(a) for a in sorted(left)])
    if repeated:
        total = total * np.float64(times)
    return total.reshape(shape)


def _in_memory_order(xp: XP, x: Array, reduced: list[bool]) -> Array:
    """The sum over the axes marked in `reduced`, of an array whose strides fall from axis to axis."""
    x, reduced = _merged(x, reduced)
    while True in reduced:
        axis = len(reduced) - 1 - reduced[::-1].index(True)
        x = _over_last(xp, x) if axis == len(reduced) - 1 else _over_rows(xp, x, axis)
        x, reduced = _merged(x, reduced[:axis] + reduced[axis + 1 :])
    return x


def _merged(x: Array, reduced: list[bool]) -> tuple[Array, list[bool]]:
    """Neighbouring axes of one kind that lie in memory like one, as one; without those of size 1."""
    shape: list[int] = []
    strides: list[int] = []
    kinds: list[bool] = []
    for n, stride, kind in zip(x.shape, x.strides, reduced, strict=True):
        if n == 1:
            continue
        if kinds and kinds[-1] == kind and strides[-1] == n * stride:
            shape[-1], strides[-1] = shape[-1] * n, stride
        else:
            shape.append(n)
            strides.append(stride)
            kinds.append(kind)
    return x.reshape(shape), kinds


def _over_last(xp: XP, x: Array) -> Array:
    """The sum over the last axis, whose elements lie nearest."""
    n = x.shape[-1]
    if n <= NARROW:
        total = x[..., 0]
        for c in range(1, n):
            total = total + x[..., c]
        return total
    if xp is np or n <= LINE:
        return x.sum(axis=-1)  # in pairs; on a GPU by many threads
    whole = n // LINE * LINE
    total = x[..., :whole].reshape(*x.shape[:-1], n // LINE, LINE).sum(axis=-1).sum(axis=-1, dtype=np.float64)
    return total + x[..., whole:].sum(axis=-1)


def _over_rows(xp: XP, x: Array, axis: int) -> Array:
    """The sum along an axis before the last one, in float64 if it is long."""
    n, inner = x.shape[axis], x.shape[axis + 1 :]
    if n <= BLOCK:
        return x.sum(axis=axis)
    columns = prod(inner)
    fold = min(WIDE // columns, n // BLOCK)
    if fold > 1 and len(inner) == 1 and x.strides[axis] == columns * x.strides[-1]:  # several rows as one
        rows, left = _split(x, axis, fold)
        rows = rows.reshape(*rows.shape[:-2], fold * columns)
        total = _over_rows(xp, rows, axis).reshape(*x.shape[:axis], fold, columns).sum(axis=axis, dtype=np.float64)
    elif xp is np and len(inner) == 1 and columns <= NARROW:
        return np.stack([x[..., c].sum(axis=-1) for c in range(columns)], axis=-1)
    else:
        blocks, left = _split(x, axis, BLOCK)
        total = blocks.sum(axis=axis + 1).sum(axis=axis, dtype=np.float64)
    return total + left.sum(axis=axis, dtype=np.float64) if left.shape[axis] else total


def _split(x: Array, axis: int, size: int) -> tuple[Array, Array]:
    """An axis as one of blocks and one within a block; and what is left at its end."""
    blocks = x.shape[axis] // size
    before = (slice(None),) * axis
    whole = x[(*before, slice(blocks * size))]
    left = x[(*before, slice(blocks * size, None))]
    return whole.reshape(*x.shape[:axis], blocks, size, *x.shape[axis + 1 :]), left
