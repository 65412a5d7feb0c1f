"""Functions that count, class and search values: unique, bincount, histogram, searchsorted, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.core.constants import axes_tensor, on_device_of, scalar
from ox.core.promotion import cast, promote_operands
from ox.core.tensor import is_tensor
from ox.dtypes import bool_, float32, float64, int32, int64, is_floating
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.functions.comparison import ne
from ox.functions.dimension_arguments import one_dim
from ox.functions.index_arguments import as_index
from ox.functions.like_creation import full_like_shape
from ox.functions.operand_arguments import like
from ox.functions.pointwise import clamp
from ox.functions.return_types import Histogram
from ox.functions.shapes import broadcast_to, cat, narrow, reshape
from ox.functions.sorting import sort
from ox.functions.zero_gradients import with_zero_gradient

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["bincount", "bucketize", "histc", "histogram", "isin", "searchsorted", "unique", "unique_consecutive"]


def unique(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The different values in ascending order, or the different slices along `dim`; on request which of them each
    element is, and how often each comes. `torch.unique`, ONNX Unique."""
    if dim is not None:
        dim = one_dim(dim, input.array.ndim)
        if not input.array.size and input.static_shape[dim]:
            raise ShapeError("unique has no slices to compare", got=str(list(input.static_shape)))
    y, _, inverse, counts = ops.Unique(input, axis=dim, outputs=4)
    inverse = reshape(inverse, input.shape) if dim is None else inverse
    return _requested_outputs(y, inverse, counts, return_inverse, return_counts)


def _requested_outputs(y: Any, inverse: Any, counts: Any, return_inverse: bool, return_counts: bool) -> Any:
    found = (y, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return found if len(found) > 1 else y


def unique_consecutive(
    input: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Without values (or slices along `dim`) that equal the one before. `torch.unique_consecutive`."""
    shape = input.shape
    if dim is None:
        input, dim = reshape(input, -1), 0
    else:
        dim, shape = one_dim(dim, input.array.ndim), None
    n = input.shape[dim]
    if not input.static_shape[dim]:
        none = full_like_shape(input, (0,), 0, int64)
        return _requested_outputs(input, none, none, return_inverse, return_counts)
    others = [d for d in range(input.array.ndim) if d != dim]
    changes = cast(ne(narrow(input, dim, 1, n - 1), narrow(input, dim, 0, n - 1)), int64)
    if others:
        changes = ops.ReduceSum(changes, axes_tensor(others), keepdims=0)
    new = cat([broadcast_to(scalar(True, bool_), [1]), cast(changes, bool_)])
    inverse = ops.Sub(ops.CumSum(cast(new, int64), scalar(0, int64)), scalar(1, int64))
    starts = reshape(ops.NonZero(new), -1)
    ends = cat([narrow(starts, 0, 1, starts.shape[0] - 1), reshape(scalar(n, int64), 1)])
    inverse = inverse if shape is None else reshape(inverse, shape)
    return _requested_outputs(
        ops.Compress(input, new, axis=dim), inverse, ops.Sub(ends, starts), return_inverse, return_counts
    )


def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, ... comes in a vector, or the sum of its weights. `torch.bincount`.

    Raises:
        ArgumentError: negative values, no vector, or another number of weights.
    """
    input = as_index(input, "bincount's input")
    if input.array.ndim != 1 or (isinstance(input.array, np.ndarray) and (input.array < 0).any()) or minlength < 0:
        raise ArgumentError("bincount takes a vector of whole numbers from 0 on, and a minlength")
    if weights is not None and weights.static_shape != input.static_shape:
        raise ArgumentError(
            "bincount needs a weight for each value",
            expected=str(list(input.static_shape)),
            got=str(list(weights.static_shape)),
        )
    if weights is None:
        weights = full_like_shape(input, (input.shape,), 1, int64)
    elif weights.array.dtype not in (float32, float64):
        weights = cast(weights, float64)
    least = scalar(minlength, int64)
    size = least
    if input.array.size:
        size = ops.Max(ops.Add(cast(ops.ReduceMax(input, keepdims=0), int64), scalar(1, int64)), least)
    start = on_device_of(ops.ConstantOfShape(reshape(size, 1), value=np.zeros(1, weights.array.dtype)), input)
    return ops.ScatterElements(start, input, weights, axis=0, reduction="add")


def searchsorted(
    sorted_sequence: Any,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Tensor:
    """The places at which values would keep a sorted sequence (the last dimension) in order: before their equals, or
    behind them with `right`. `torch.searchsorted`.

    Raises:
        ArgumentError: another side, or a side that contradicts `right`.
        ShapeError: sequences of several dimensions whose leading ones are not those of the values.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ArgumentError("invalid side of searchsorted", got=f"{side}, {right=}")
    right = right or side == "right"
    sequence = sorted_sequence
    if sorter is not None:
        sequence = ops.GatherElements(sequence, sorter, axis=sequence.array.ndim - 1)
    values = like(input, sequence)
    sequence, values = _alike(sequence, values)
    shape = values.shape
    if not sequence.array.size or not values.array.size:
        return full_like_shape(values, (shape,), 0, int32 if out_int32 else int64)
    if sequence.array.ndim == 1:
        rows = ops.Unsqueeze(sequence, axes_tensor([0])), reshape(values, 1, -1)
    else:
        if sequence.static_shape[:-1] != values.static_shape[:-1]:
            raise ShapeError(
                "searchsorted needs values for each sequence",
                expected=f"{[*sequence.static_shape[:-1], '...']}",
                got=str(list(values.static_shape)),
            )
        rows = reshape(sequence, -1, sequence.shape[-1]), reshape(values, -1, values.shape[-1])
    places = reshape(ops.SearchSorted(*rows, right=int(right)), shape)
    return cast(places, int32) if out_int32 else places


def _alike(sequence: Any, values: Any) -> tuple[Any, Any]:
    if sequence.array.dtype != values.array.dtype or sequence.array.dtype == bool_:
        sequence, values = promote_operands(sequence, values)
        if sequence.array.dtype == bool_:
            return cast(sequence, int64), cast(values, int64)
    return sequence, values


def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The bucket of each value between boundaries (a sorted vector): `searchsorted` with the arguments exchanged.
    `torch.bucketize`."""
    if boundaries.array.ndim != 1:
        raise ShapeError("boundaries are a vector", got=str(list(boundaries.static_shape)))
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element is among the others. `torch.isin`."""
    if not is_tensor(elements):
        elements = like(elements, test_elements)
    among, values = _alike(reshape(like(test_elements, elements), -1), elements)
    if not among.array.size:
        return full_like_shape(values, (values.shape,), invert, bool_)
    among = sort(among).values
    last = scalar(among.numel() - 1, int64)
    place = ops.Min(searchsorted(among, values), last)
    found = ops.Equal(ops.Gather(among, place, axis=0), values)
    return ops.Not(found) if invert else found


def _limits(x: Any, low: Any, high: Any, what: str, margin: float) -> tuple[Any, Any]:
    """The ends of a range as numbers of the type of `x`: its own extremes where both ends are equal, with a margin if
    these are, too."""
    dtype = x.array.dtype
    if low == high and x.array.size:
        low, high = ops.Neg(ops.ReduceMax(ops.Neg(x), keepdims=0)), ops.ReduceMax(x, keepdims=0)
    else:
        low, high = scalar(low, dtype), scalar(high, dtype)
    if isinstance(low.array, np.ndarray) and not (np.isfinite(low.array) and np.isfinite(high.array)):
        raise ArgumentError(f"{what} needs a finite range", got=f"{low.array} to {high.array}")
    if isinstance(low.array, np.ndarray) and low.array > high.array:
        raise ArgumentError(f"{what} needs a range that ascends", got=f"{low.array} to {high.array}")
    same = ops.Equal(low, high)
    one = scalar(margin, dtype)
    return ops.Where(same, ops.Sub(low, one), low), ops.Where(same, ops.Add(high, one), high)


def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of `bins` equal parts of [min, max], by default from the smallest to the largest;
    in the type of `input`. `torch.histc`.

    Raises:
        DTypeError: no floats.
        ArgumentError: no bins, or no range.
    """
    input = reshape(input, -1).detach()
    dtype = input.array.dtype
    if not is_floating(dtype):
        raise DTypeError("histc takes floats", got=str(dtype), hint="x.float()")
    if bins < 1:
        raise ArgumentError("histc needs 1 bin or more", got=str(bins))
    low, high = _limits(input, min, max, "histc", 1)
    # in this order: half precision rounds at each step, and an element on an edge falls where PyTorch has it
    part = ops.Div(ops.Mul(ops.Sub(input, low), scalar(bins, dtype)), ops.Sub(high, low))
    inside = ops.And(ops.GreaterOrEqual(input, low), ops.LessOrEqual(input, high))
    place = clamp(cast(ops.Where(inside, part, scalar(0, dtype)), int64), 0, bins - 1)
    return ops.ScatterElements(full_like_shape(input, (bins,), 0), place, cast(inside, dtype), axis=0, reduction="add")


def histogram(
    input: Any,
    bins: Any = 100,
    *,
    range: tuple[float, float] | None = None,
    weight: Any = None,
    density: bool = False,
) -> Histogram:
    """(hist, bin_edges): how many elements, or what weight, between the edges; `bins` is a count of equal parts of
    `range` (by default of the extremes), or the edges. With `density` an area of 1. `torch.histogram`."""
    whole = reshape(input, -1)
    flat = whole.detach()
    dtype = flat.array.dtype
    if not is_floating(dtype):
        raise DTypeError("histogram takes floats", got=str(dtype), hint="x.float()")
    if is_tensor(bins):
        edges = cast(bins, dtype)
    else:
        if bins < 1:
            raise ArgumentError("histogram needs 1 bin or more", got=str(bins))
        first, last = range or (0, 0)
        if first == last and not flat.array.size:
            last = first + 1
        low, high = _limits(whole, first, last, "histogram", 0.5)
        steps = cast(ops.Range(scalar(0, int64), scalar(bins + 1, int64), scalar(1, int64)), dtype)
        shares = on_device_of(ops.Div(steps, scalar(bins, dtype)), flat)
        edges = ops.Add(low, ops.Mul(shares, ops.Sub(high, low)))
        edges = cat([narrow(edges, 0, 0, bins), reshape(high, 1)])
    count = edges.shape[0] - 1
    lowest, highest = narrow(edges, 0, 0, 1), narrow(edges, 0, count, 1)
    inside = ops.And(ops.GreaterOrEqual(flat, lowest), ops.LessOrEqual(flat, highest))
    place = clamp(searchsorted(edges, flat, right=True) - 1, 0, count - 1)
    amount = cast(inside, dtype)
    if weight is not None:
        amount = ops.Mul(amount, cast(reshape(weight, -1), dtype))
    hist = ops.ScatterElements(full_like_shape(flat, (count,), 0), place, amount, axis=0, reduction="add")
    if density:
        widths = ops.Sub(narrow(edges, 0, 1, count), narrow(edges, 0, 0, count))
        hist = ops.Div(ops.Div(hist, ops.ReduceSum(hist)), widths)
    return Histogram(with_zero_gradient(hist, whole), edges)
