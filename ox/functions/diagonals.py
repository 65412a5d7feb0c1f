"""Diagonals and triangles: diag, diagonal, tril, triu, trace, ..."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.core import operator, views
from ox.core.constants import axes_tensor, on_device_of, positions, scalar, stored
from ox.core.operator import OPS
from ox.core.promotion import cast
from ox.core.symbolic import Dim, size_tensor
from ox.dtypes import DType, int64, is_floating
from ox.errors import ArgumentError, ShapeError
from ox.functions.dimension_arguments import one_dim
from ox.functions.shapes import flatten, permute, reshape, unsqueeze
from ox.ops.shape.pad import pad_axes

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "trace", "tril", "tril_indices", "triu",
    "triu_indices",
]  # fmt: skip


def _triangle(upper: int) -> Any:
    def function(input: Any, diagonal: int = 0) -> Tensor:
        if input.array.ndim < 2:
            raise ShapeError(
                f"{function.__name__} takes matrices",
                expected="two dimensions or more",
                got=str(list(input.static_shape)),
            )
        return ops.Trilu(input, scalar(diagonal, int64), upper=upper)

    function.__name__ = function.__qualname__ = "triu" if upper else "tril"
    side = "below" if upper else "above"
    function.__doc__ = f"Zeros {side} the diagonal of every matrix. `torch.{function.__name__}`, ONNX Trilu."
    return function


tril, triu = _triangle(0), _triangle(1)


def _triangle_indices(upper: bool) -> Any:
    def function(
        row: int,
        col: int,
        offset: int = 0,
        *,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> Tensor:
        if row < 0 or col < 0:
            raise ArgumentError("a matrix has no negative sizes", got=f"{row} × {col}")
        if isinstance(row, Dim) or isinstance(col, Dim):
            below, right = unsqueeze(positions(row), 1) + scalar(offset, int64), positions(col)
            made = ops.NonZero(ops.LessOrEqual(below, right) if upper else ops.GreaterOrEqual(below, right))
            made = made if dtype is None else cast(made, dtype)
        else:
            places = np.triu_indices(row, offset, col) if upper else np.tril_indices(row, offset, col)
            made = operator.as_input(np.stack(places).astype(int64 if dtype is None else dtype))
        made = made.to(device) if device else made
        return made.requires_grad_() if requires_grad else made

    function.__name__ = function.__qualname__ = "triu_indices" if upper else "tril_indices"
    where = "on and above" if upper else "on and below"
    function.__doc__ = f"The places {where} a diagonal of a matrix, [2, how many]. `torch.{function.__name__}`."
    return function


tril_indices, triu_indices = _triangle_indices(False), _triangle_indices(True)


def _least(a: Any, b: Any) -> Any:
    """min of sizes that may be `ox.Dim`."""
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return max(min(a, b), 0)
    value = max(min(int(a), int(b)), 0)
    return Dim(value, lambda: OPS["Max"](OPS["Min"](size_tensor([a]), size_tensor([b])), axes_tensor([0])))


def _two(x: Any, dim1: int, dim2: int, what: str) -> tuple[int, int]:
    rank = x.array.ndim
    first, second = one_dim(dim1, rank), one_dim(dim2, rank)
    if rank < 2 or first == second:
        raise ArgumentError(f"{what} needs two different dimensions", got=f"{dim1}, {dim2}")
    return first, second


def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonals of the matrices in dimensions `dim1` and `dim2`, as last dimension; a view. `torch.diagonal`."""
    first, second = _two(input, dim1, dim2, "diagonal")
    made = _gather_diagonal(input, offset, first, second)
    if made._base is not (input if input._base is None else input._base):
        array = input.array.diagonal(offset, first, second)
        views.share_memory(made, array, input, lambda x: _gather_diagonal(x, offset, first, second))
    return made


def _gather_diagonal(x: Any, offset: int, first: int, second: int) -> Tensor:
    rest = [d for d in range(x.array.ndim) if d not in (first, second)]
    x = permute(x, [*rest, first, second]) if [*rest, first, second] != list(range(x.array.ndim)) else x
    *lead, n, m = x.shape
    start = offset if offset >= 0 else -offset * m
    length = _least(n, m - offset) if offset >= 0 else _least(n + offset, m)
    flat = reshape(x, [*lead, n * m])
    axis = len(lead)
    if isinstance(m, Dim):  # a stride of a slice that changes has no gradient
        places = positions(length) * scalar(m + 1, int64) + scalar(start, int64)
        return ops.Gather(flat, on_device_of(places, x), axis=axis)
    if not length:
        return ops.Slice(flat, axes_tensor([0]), axes_tensor([0]), axes_tensor([axis]))
    end = start + (length - 1) * (m + 1) + 1
    return ops.Slice(flat, size_tensor([start]), size_tensor([end]), axes_tensor([axis]), axes_tensor([m + 1]))


def _on_diagonal(rows: Any, columns: Any, offset: int) -> Tensor:
    """bool [rows, columns], true on the diagonal."""
    down = unsqueeze(positions(rows), 1)
    return ops.Equal(down + scalar(offset, int64) if offset else down, positions(columns))


def _as_rows(x: Any, rows: Any, offset: int) -> Tensor:
    """The elements of a diagonal [..., k] at the rows in which they stand, [..., rows, 1]."""
    before = max(-offset, 0)
    last = x.array.ndim - 1
    return unsqueeze(pad_axes(x, {last: (before, rows - before - x.shape[last])}), -1)


def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices in dimensions `dim1` and `dim2` with the last dimension of `input` on their diagonal.
    `torch.diag_embed`."""
    rank = input.array.ndim + 1
    first, second = one_dim(dim1, rank), one_dim(dim2, rank)
    if rank < 2 or first == second:
        raise ArgumentError("diag_embed needs two different dimensions", got=f"{dim1}, {dim2}")
    n = input.shape[-1] + abs(offset)
    matrices = ops.Where(
        on_device_of(_on_diagonal(n, n, offset), input), _as_rows(input, n, offset), scalar(0, input.array.dtype)
    )
    order = list(range(rank - 2))
    for place, source in sorted(((first, rank - 2), (second, rank - 1))):
        order.insert(place, source)
    return matrices if order == list(range(rank)) else permute(matrices, order)


def diag(input: Any, diagonal: int = 0) -> Tensor:
    """A vector as a matrix with it on the diagonal, or a copy of the diagonal of a matrix. `torch.diag`."""
    if input.array.ndim == 1:
        return diag_embed(input, diagonal)
    if input.array.ndim == 2:
        return views.in_own_memory(_diagonal(input, diagonal), input)
    raise ShapeError("diag takes a vector or a matrix", got=str(list(input.static_shape)))


_diagonal = diagonal


def diagflat(input: Any, offset: int = 0) -> Tensor:
    """A matrix with all elements of `input` on its diagonal. `torch.diagflat`."""
    return diag_embed(flatten(input), offset)


def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """`input` with `src` on its diagonals. `torch.diagonal_scatter`."""
    first, second = _two(input, dim1, dim2, "diagonal_scatter")
    rest = [d for d in range(input.array.ndim) if d not in (first, second)]
    order = [*rest, first, second]
    expected = _diagonal(input.detach(), offset, first, second).static_shape
    if src.static_shape != expected:
        raise ShapeError(
            "diagonal_scatter: the source does not have the shape of the diagonal",
            expected=str(list(expected)),
            got=str(list(src.static_shape)),
        )
    n, m = input.shape[first], input.shape[second]
    rows = _as_rows(cast(src, input.array.dtype), n, offset)
    made = ops.Where(on_device_of(_on_diagonal(n, m, offset), input), rows, permute(input, order))
    back = [order.index(d) for d in range(input.array.ndim)]
    return permute(made, back)


def fill_diagonal(x: Any, fill_value: Any, wrap: bool = False) -> Tensor:
    """`x` with one number on its diagonal, of more dimensions where all coordinates are equal; with `wrap` again and
    again below, in a tall matrix. What `torch.Tensor.fill_diagonal_` writes.

    Raises:
        ShapeError: fewer than two dimensions, or more of different sizes.
    """
    shape = x.static_shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError("fill_diagonal_ takes a matrix, or equal sizes", got=str(list(shape)))
    if any(isinstance(size, Dim) for size in x.shape):
        return _fill_open_diagonal(x, fill_value, wrap)
    step = int(sum(np.prod(shape[d + 1 :], dtype=int) for d in range(len(shape))))
    end = x.array.size if wrap or len(shape) > 2 or shape[0] <= shape[1] else shape[1] * shape[1]
    places = np.arange(0, min(end, step * (min(shape) - 1) + 1) if not wrap else end, step)
    filled = np.full(places.shape, stored(fill_value, x.array.dtype).array)
    flat = ops.ScatterElements(reshape(x, -1), *(on_device_of(operator.as_input(a), x) for a in (places, filled)))
    return reshape(flat, x.shape)


def _fill_open_diagonal(x: Any, fill_value: Any, wrap: bool) -> Tensor:
    """`fill_diagonal` where a recording leaves sizes open: places in row-major order, and which of them are filled."""
    sizes = list(x.shape)
    steps = [prod(sizes[d + 1 :]) for d in range(len(sizes))]
    places = positions(prod(sizes))
    filled = ops.Equal(ops.Mod(places, size_tensor([sum(steps)])), scalar(0, int64))
    if not wrap and len(sizes) == 2:
        filled = ops.And(filled, ops.Less(places, size_tensor([sizes[1] * sizes[1]])))
    return ops.Where(on_device_of(reshape(filled, sizes), x), stored(fill_value, x.array.dtype), x)


def trace(input: Any) -> Tensor:
    """The sum of a matrix's diagonal; of integers in int64. `torch.trace`."""
    if input.array.ndim != 2:
        raise ShapeError("trace takes a matrix", got=str(list(input.static_shape)))
    line = _diagonal(input)
    return ops.ReduceSum(line if is_floating(input.array.dtype) else cast(line, int64), keepdims=0)
