"""Index tensors and masks as arguments: of the right kind, inside the dimension, or refused with a clear error."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import ops
from ox.dtypes import bool_, int32, int64
from ox.errors import BoundsError, DTypeError, ShapeError
from ox.functions.shapes import broadcast_to, reshape
from ox.operands import cast, scalar
from ox.ops import operator
from ox.where import users_line


def as_index(index: Any, what: str) -> Any:
    """An int32 or int64 tensor. Raises DTypeError for another kind."""
    index = index if hasattr(index, "node") else operator.as_input(np.asarray(index))
    dtype = index.array.dtype
    if dtype in (int32, int64):
        return index
    if dtype.kind in "iu":
        return cast(index, int64)
    raise DTypeError(f"{what} holds whole numbers", where=users_line(3), expected="int64", got=str(dtype))


def inside(index: Any, size: int, what: str, *, negative: bool = False) -> Any:
    """The index, if every entry lies in the dimension; on a GPU looking would wait for it.

    Raises:
        DTypeError: no whole numbers.
        BoundsError: an entry outside.
    """
    index = as_index(index, what)
    array = index.array
    if isinstance(array, np.ndarray) and array.size:
        low, high, least = int(array.min()), int(array.max()), -int(size) if negative else 0
        if low < least or high >= size:
            raise BoundsError(
                f"{what} points outside a dimension of size {int(size)}",
                where=users_line(3),
                expected=f"{least} to {int(size) - 1}" if size else "no index, for it has no elements",
                got=str(low if low < least else high),
            )
    return index


def counted(index: Any, size: Any) -> Any:
    """Places that count from the end, where negative, counted from the beginning."""
    array = index.array
    if index._recorded is None and isinstance(array, np.ndarray) and not (array < 0).any():
        return index
    zero = scalar(0, array.dtype)
    return ops.Where(ops.Less(index, zero), ops.Add(index, scalar(size, array.dtype)), index)


def vector(index: Any, what: str) -> Any:
    """An index of at most one dimension as one of just one. Raises ShapeError for another."""
    index = as_index(index, what)
    if index.array.ndim > 1:
        raise ShapeError(f"{what} has one dimension", where=users_line(3), got=str(list(index.array.shape)))
    return at_least_one(index)


def at_least_one(x: Any) -> Any:
    """A number as a vector of one element."""
    return x if x.array.ndim else reshape(x, 1)


def fits(x: Any, dim: int, index: Any, what: str) -> None:
    """Raise ShapeError unless the index is of the rank of `x`, and no larger but along `dim`."""
    have, want = index.array.shape, x.array.shape
    if len(have) != len(want) or [1 for d in range(len(want)) if d != dim and have[d] > want[d]]:
        raise ShapeError(
            f"{what}: the index does not lie inside the tensor",
            where=users_line(3),
            expected=f"{len(want)} dimensions, none but dimension {dim} larger than those of {list(want)}",
            got=str(list(have)),
        )


def as_mask(mask: Any, what: str) -> Any:
    """A bool tensor. Raises DTypeError for another kind."""
    mask = mask if hasattr(mask, "node") else operator.as_input(np.asarray(mask))
    if mask.array.dtype != bool_:
        raise DTypeError(f"{what} is a bool tensor", where=users_line(3), got=str(mask.array.dtype), hint="mask != 0")
    return mask


def together(*tensors: Any) -> tuple[Any, ...]:
    """All broadcast to the shape in which they meet; sizes may be `ox.Dim`. Raises ShapeError if they do not."""
    sizes = met(*(t.shape for t in tensors))
    return tuple(t if t.array.shape == tuple(sizes) else broadcast_to(t, sizes) for t in tensors)


def met(*shapes: Any) -> list[Any]:
    """The sizes to which shapes broadcast, which may be `ox.Dim`. Raises ShapeError if there are none."""
    try:
        np.broadcast_shapes(*(tuple(map(int, shape)) for shape in shapes))
    except ValueError:
        raise ShapeError(
            "these shapes do not broadcast together",
            where=users_line(3),
            expected="sizes that are equal or 1, counted from the last dimension",
            got=", ".join(str(list(map(int, shape))) for shape in shapes),
        ) from None
    rank = max(map(len, shapes), default=0)
    sizes: list[Any] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, start=rank - len(shape)):
            sizes[i] = size if sizes[i] == 1 else sizes[i]
    return sizes
