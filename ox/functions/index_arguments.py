"""Index tensors and masks as arguments: of the right kind, inside the dimension, or refused with a clear error."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import ops
from ox.core import operator
from ox.core.constants import scalar
from ox.core.promotion import cast
from ox.core.tensor import is_tensor
from ox.dtypes import bool_, int32, int64
from ox.errors import BoundsError, DTypeError, ShapeError
from ox.functions.shapes import broadcast_to, reshape
from ox.ops.index.in_range import check_in_later_runs


def as_index(index: Any, what: str) -> Any:
    """An int32 or int64 tensor. Raises DTypeError for another kind."""
    index = index if is_tensor(index) else operator.as_input(np.asarray(index))
    dtype = index.array.dtype
    if dtype in (int32, int64):
        return index
    if dtype.kind in "iu":
        return cast(index, int64)
    raise DTypeError(f"{what} holds whole numbers", expected="int64", got=str(dtype))


def check_range(index: Any, size: int, what: str, *, negative: bool = False) -> Any:
    """The index, if every entry is in the dimension; on a GPU the check would synchronize.

    Raises:
        DTypeError: no whole numbers.
        BoundsError: an entry outside.
    """
    index = as_index(index, what)
    array, least = index.array, -int(size) if negative else 0
    outside = f"{what} points outside a dimension of size {int(size)}"
    if isinstance(array, np.ndarray) and array.size:
        low, high = int(array.min()), int(array.max())
        if low < least or high >= size:
            raise BoundsError(
                outside,
                expected=f"{least} to {int(size) - 1}" if size else "no index, for it has no elements",
                got=str(low if low < least else high),
            )
    return check_in_later_runs(index, least, int(size) - 1, outside)


def from_start(index: Any, size: Any) -> Any:
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
        raise ShapeError(f"{what} has one dimension", got=str(list(index.static_shape)))
    return at_least_one(index)


def at_least_one(x: Any) -> Any:
    """A number as a vector of one element."""
    return x if x.array.ndim else reshape(x, 1)


def fits(x: Any, dim: int, index: Any, what: str) -> None:
    """Raise ShapeError unless the index is of the rank of `x`, and no larger but along `dim`."""
    have, want = index.static_shape, x.static_shape
    if len(have) != len(want) or [1 for d in range(len(want)) if d != dim and have[d] > want[d]]:
        raise ShapeError(
            f"{what}: the index does not lie inside the tensor",
            expected=f"{len(want)} dimensions, none but dimension {dim} larger than those of {list(want)}",
            got=str(list(have)),
        )


def as_mask(mask: Any, what: str) -> Any:
    """A bool tensor. Raises DTypeError for another kind."""
    mask = mask if is_tensor(mask) else operator.as_input(np.asarray(mask))
    if mask.array.dtype != bool_:
        raise DTypeError(f"{what} is a bool tensor", got=str(mask.array.dtype), hint="mask != 0")
    return mask


def broadcast_all(*tensors: Any) -> tuple[Any, ...]:
    """All broadcast to the shape in which they meet; sizes may be `ox.Dim`. Raises ShapeError if they do not."""
    sizes = broadcast_sizes(*(t.shape for t in tensors))
    return tuple(t if t.static_shape == tuple(sizes) else broadcast_to(t, sizes) for t in tensors)


def broadcast_sizes(*shapes: Any) -> list[Any]:
    """The sizes to which shapes broadcast, which may be `ox.Dim`. Raises ShapeError if there are none."""
    try:
        np.broadcast_shapes(*(tuple(map(int, shape)) for shape in shapes))
    except ValueError:
        raise ShapeError(
            "these shapes do not broadcast together",
            expected="sizes that are equal or 1, counted from the last dimension",
            got=", ".join(str(list(map(int, shape))) for shape in shapes),
        ) from None
    rank = max(map(len, shapes), default=0)
    sizes: list[Any] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, start=rank - len(shape)):
            sizes[i] = size if sizes[i] == 1 else sizes[i]
    return sizes
