"""Matrix products of float32 or bfloat16 on the compiled kernels: matrices, stacks of them, and Gemm with a bias for
each column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ox.devices.summation import sum_into
from ox.dtypes import float32
from ox.kernels import Library, address

# Below, NumPy's BLAS multiplies on one thread, and its call is shorter. From here on it would wake its threads, which
# afterwards wait actively for tens of milliseconds, and take the cores from these kernels.
THREADED_PRODUCT = 1 << 18  # multiplications of two matrices
THREADED_VECTOR_PRODUCT = 9216  # of a matrix with one row or column
Strides = tuple[int, int]


def _is_for_numpy(a: Any, rows: int, depth: int, columns: int) -> bool:
    """Whether NumPy's product of these sizes stays on one thread; it has none of bfloat16."""
    if a.dtype != float32:
        return False
    return rows * depth * columns < (THREADED_VECTOR_PRODUCT if 1 in (rows, columns) else THREADED_PRODUCT)


def _steps(a: Any) -> Strides | None:
    """Numbers from row to row and from column to column; None where they do not fit."""
    (row, column), size = a.strides[-2:], a.itemsize
    return (row // size, column // size) if row >= 0 and column >= 0 and row % size == column % size == 0 else None


def matmul(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MatMul of matrices, of a stack by one matrix, and of two stacks of equal leading dimensions."""
    a, b = arrays
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2] or not a.size or not b.size:
        return None
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    if _is_for_numpy(a, math.prod(a.shape[:-1]), depth, columns):
        return None
    if b.ndim == 2:
        if a.ndim > 2:
            if not a.flags.c_contiguous:
                return None
            a = a.reshape(-1, depth)
        y = product(library, a, b, None)
        return None if y is None else y.reshape(*arrays[0].shape[:-1], columns)
    if a.shape[:-2] != b.shape[:-2]:
        return None
    a, b = _stack(a), _stack(b)
    a_steps, b_steps = _steps(a), _steps(b)
    if a_steps is None or b_steps is None or a.strides[0] < 0 or b.strides[0] < 0:
        return None
    y = library.empty((*arrays[0].shape[:-2], rows, columns), a.dtype)
    steps = np.array([a.strides[0] // a.itemsize, *a_steps, b.strides[0] // b.itemsize, *b_steps], np.int64)
    run = library.ox_batched_matmul if a.dtype == float32 else library.ox_batched_matmul_bfloat16
    run(len(a), rows, depth, columns, address(a), address(b), library.numbers(steps), address(y))
    return y


def _stack(a: Any) -> Any:
    """With one leading dimension; a copy where the leading ones do not lie in a row."""
    return a if a.ndim == 3 else a.reshape(-1, *a.shape[-2:])


def product(library: Library, a: Any, b: Any, bias: Any) -> Any:
    """a [M, K] times b [K, N], which may be transposed views, plus a bias [N]; None for other strides."""
    a_steps, b_steps = _steps(a), _steps(b)
    if a_steps is None or b_steps is None:
        return None
    rows, depth, columns = a.shape[0], a.shape[1], b.shape[1]
    y = library.empty((rows, columns), a.dtype)
    run = library.ox_matmul if a.dtype == float32 else library.ox_matmul_bfloat16
    run(
        rows, depth, columns, address(a), *a_steps, address(b), *b_steps, 0 if bias is None else address(bias),
        address(y),
    )  # fmt: skip
    return y


def linear(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Linear, with a bias for each column or none."""
    x, w, *rest = arrays
    bias = rest[0] if rest else None
    if x.ndim < 2 or not x.size or w.ndim != 2 or not w.size or x.shape[-1] != w.shape[1]:
        return None
    if bias is not None and not (bias.shape == w.shape[:1] and bias.flags.c_contiguous):
        return None
    y = _any_product(library, x if x.ndim == 2 else x.reshape(-1, w.shape[1]), w.T, bias)
    return y if y is None or x.ndim == 2 else y.reshape(*x.shape[:-1], w.shape[0])


def linear_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LinearGradient."""
    g, x, w = arrays
    if x.ndim < 2 or not x.size or not w.size or (*x.shape[:-1], w.shape[0]) != g.shape or x.shape[-1] != w.shape[1]:
        return None
    rows, inputs = (g, x) if x.ndim == 2 else (g.reshape(-1, w.shape[0]), x.reshape(-1, w.shape[1]))
    to_input, to_weight = _any_product(library, rows, w, None), _any_product(library, rows.T, inputs, None)
    if to_input is None or to_weight is None:
        return None
    to_input = to_input if x.ndim == 2 else to_input.reshape(x.shape)
    return (to_input, to_weight, column_sums(library, rows)) if attributes.get("bias", 1) else (to_input, to_weight)


def _any_product(library: Library, a: Any, b: Any, bias: Any) -> Any:
    """`product`, or NumPy's where that stays on one thread."""
    if not _is_for_numpy(a, a.shape[0], a.shape[1], b.shape[1]):
        return product(library, a, b, bias)
    y = library.empty((a.shape[0], b.shape[1]), a.dtype)
    library.call(np.matmul, a, b, y)
    if bias is not None:
        library.call(np.add, y, bias, y)
    return y


def column_sums(library: Library, rows: Any) -> Any:
    """The sums of a matrix's columns."""
    sums = library.empty(rows.shape[1], rows.dtype)
    library.call(sum_into, rows, (0,), sums)
    return sums


def gemm(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Gemm with alpha 1 and no bias, or one for each column."""
    a, b, *rest = arrays
    bias = rest[0] if rest else None
    if a.ndim != 2 or b.ndim != 2 or attributes.get("alpha", 1.0) != 1.0:
        return None
    a = a.T if attributes.get("transA") else a
    b = b.T if attributes.get("transB") else b
    if a.shape[1] != b.shape[0] or not a.size or not b.size:
        return None
    if _is_for_numpy(a, a.shape[0], a.shape[1], b.shape[1]):
        return None
    if bias is not None and (
        attributes.get("beta", 1.0) != 1.0 or bias.shape != b.shape[1:] or not bias.flags.c_contiguous
    ):
        return None
    return product(library, a, b, bias)
