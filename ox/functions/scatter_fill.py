"""Functions that write elements at places, or under a mask, of a copy; each has a form that writes in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.amp.policy import by_policy
from ox.core.constants import on_device_of, scalar, stored
from ox.core.promotion import cast
from ox.core.symbolic import Dim
from ox.core.tensor import is_tensor
from ox.dtypes import bool_, int64, is_floating
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.functions.dimension_arguments import one_dim
from ox.functions.index_arguments import as_mask, at_least_one, broadcast_all, check_range, fits, from_start, vector
from ox.functions.like_creation import full_like, full_like_shape, ones_like, zeros_like
from ox.functions.operand_arguments import stored_like
from ox.functions.pointwise import clamp, div
from ox.functions.shapes import broadcast_to, cat, narrow, reshape, unsqueeze
from ox.functions.zero_gradients import with_zero_gradient

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "fill", "index_add", "index_copy", "index_fill", "index_put", "index_reduce", "masked_scatter", "put", "scatter",
    "scatter_add", "scatter_reduce", "select_scatter", "slice_scatter",
]  # fmt: skip

REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}


def _source(x: Any, dim: int, index: Any, source: Any, what: str) -> Tensor:
    """What is written for each entry of `index`: a number everywhere, or the corner of a tensor."""
    fits(x, dim, index, what)
    if not is_tensor(source):
        return broadcast_to(stored(source, x.array.dtype), index.shape)
    have, want = source.static_shape, index.static_shape
    if source.array.dtype != x.array.dtype:
        raise DTypeError(
            f"{what}: the source has another element type",
            expected=str(x.array.dtype),
            got=str(source.array.dtype),
            hint=f"src.to(ox.{x.array.dtype})",
        )
    if have == want:
        return source
    if len(have) != len(want) or [1 for a, b in zip(have, want, strict=True) if a < b]:
        raise ShapeError(
            f"{what}: the source is smaller than the index", expected=f"at least {list(want)}", got=str(list(have))
        )
    for d, (a, b) in enumerate(zip(have, index.shape, strict=True)):
        source = source if a == b else narrow(source, d, 0, b)
    return source


def _scattered(x: Any, dim: int, index: Any, source: Any, reduction: str, what: str) -> Tensor:
    dim = one_dim(dim, x.array.ndim)
    if not x.array.ndim:
        given = at_least_one(source) if is_tensor(source) else source
        return reshape(_scattered(reshape(x, 1), 0, at_least_one(index), given, reduction, what), [])
    source = _source(x, dim, index, source, what)
    return _elements(x, check_range(index, x.static_shape[dim], f"{what}'s index"), source, dim, reduction)


def _elements(x: Any, index: Any, source: Any, dim: int, reduction: str) -> Tensor:
    if x.array.dtype == bool_ and reduction != "none":  # which ONNX neither adds nor multiplies
        kind = {"add": "max", "mul": "min"}.get(reduction, reduction)
        return cast(_elements(cast(x, int64), index, cast(source, int64), dim, kind), bool_)
    return ops.ScatterElements(x, index, source, axis=dim, reduction=reduction)


def scatter(
    input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """`input` with `src` (a tensor of its type, or a number) written at `index` along `dim`; places should not repeat,
    unless `reduce` is "add" or "multiply". `torch.scatter`, ONNX ScatterElements.

    Raises:
        BoundsError: an entry outside the dimension.
        ShapeError: the index is no part of `input`, or the source is smaller than the index.
    """
    kinds = {None: "none", "add": "add", "multiply": "mul"}
    if reduce not in kinds:
        raise ArgumentError(f"scatter has no reduce {reduce!r}", expected="add or multiply")
    return _scattered(input, dim, index, value if src is None else src, kinds[reduce], "scatter")


@by_policy
def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Tensor:
    """`input` with `src` added at `index` along `dim`; repeated places add up. `torch.scatter_add`."""
    return _scattered(input, dim, index, src, "add", "scatter_add")


def scatter_reduce(input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """`input` with all of `src` that goes to one place reduced there: "sum", "prod", "mean", "amax" or "amin", together
    with what stood there unless `include_self` is False. `torch.scatter_reduce`."""
    dim = one_dim(dim, input.array.ndim)
    if not input.array.ndim:
        one = scatter_reduce(
            reshape(input, 1), 0, at_least_one(index), at_least_one(src), reduce, include_self=include_self
        )
        return reshape(one, [])
    src = _source(input, dim, index, src, "scatter_reduce")
    return _reduced(
        input, dim, check_range(index, input.static_shape[dim], "scatter_reduce's index"), src, reduce, include_self
    )


def _reduced(x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> Tensor:
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"no reduction {reduce!r}", expected=", ".join(REDUCTIONS))
    dtype = x.array.dtype
    if not include_self:
        start = full_like_shape(x, tuple(index.shape), _neutral(reduce, dtype), dtype)
        x = ops.ScatterElements(x, index, start, axis=dim)
    total = _elements(x, index, src, dim, REDUCTIONS[reduce])
    if reduce != "mean":
        return total
    ones = ones_like(src, dtype=int64)
    first = ones_like(x, dtype=int64) if include_self else zeros_like(x, dtype=int64)
    count = clamp(ops.ScatterElements(first, index, ones, axis=dim, reduction="add"), min=1)
    return div(total, cast(count, dtype), rounding_mode=None if is_floating(dtype) else "floor")


def _neutral(reduce: str, dtype: Any) -> Any:
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype == bool_:
        return reduce == "amin"
    if is_floating(dtype):
        return np.inf if reduce == "amin" else -np.inf
    limits = np.iinfo(dtype)
    return limits.max if reduce == "amin" else limits.min


def _rows(x: Any, dim: int, index: Any, source: Any, what: str) -> tuple[int, Any, Any]:
    """The dimension; the index [k] at every element of the source; the source."""
    dim = one_dim(dim, x.array.ndim)
    index = check_range(vector(index, f"{what}'s index"), x.static_shape[dim], f"{what}'s index")
    wanted = [*x.static_shape[:dim], index.static_shape[0], *x.static_shape[dim + 1 :]]
    if list(source.static_shape) != wanted:
        raise ShapeError(f"{what}: the source does not fit", expected=str(wanted), got=str(list(source.shape)))
    if source.array.dtype != x.array.dtype:
        raise DTypeError(
            f"{what}: the source has another element type", expected=str(x.array.dtype), got=str(source.array.dtype)
        )
    return dim, expand_index(index, dim, source.shape), source


def expand_index(index: Any, dim: int, shape: Any) -> Tensor:
    """An index [k] of places along `dim`, the same for every other coordinate of `shape`."""
    rank = len(shape)
    column = reshape(index, [index.shape[0] if d == dim else 1 for d in range(rank)])
    return broadcast_to(column, shape)


def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Tensor:
    """`input` with the slices of `source`, times alpha, added at the places `index` [k] along `dim`; repeated places
    add up. `torch.index_add`."""
    if not input.array.ndim:
        return reshape(index_add(reshape(input, 1), dim, index, at_least_one(source), alpha=alpha), [])
    dim, index, source = _rows(input, dim, index, source, "index_add")
    return _elements(input, index, source if alpha == 1 else source * alpha, dim, "add")


@by_policy
def index_copy(input: Any, dim: int, index: Any, source: Any) -> Tensor:
    """`input` with the slices of `source` in the places `index` [k] along `dim`. `torch.index_copy`."""
    if not input.array.ndim:
        return reshape(index_copy(reshape(input, 1), dim, index, at_least_one(source)), [])
    dim, index, source = _rows(input, dim, index, source, "index_copy")
    return ops.ScatterElements(input, index, source, axis=dim)


def index_reduce(input: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """`scatter_reduce` of whole slices ("prod", "mean", "amax", "amin"). `torch.index_reduce`."""
    if not input.array.ndim:
        one = index_reduce(reshape(input, 1), dim, index, at_least_one(source), reduce, include_self=include_self)
        return reshape(one, [])
    dim, index, source = _rows(input, dim, index, source, "index_reduce")
    return _reduced(input, dim, index, source, reduce, include_self)


def index_fill(input: Any, dim: int, index: Any, value: Any) -> Tensor:
    """`input` with one number in the slices `index` [k] along `dim`. `torch.index_fill`."""
    if not input.array.ndim:
        return reshape(index_fill(reshape(input, 1), dim, index, value), [])
    dim = one_dim(dim, input.array.ndim)
    index = check_range(
        vector(index, "index_fill's index"), input.static_shape[dim], "index_fill's index", negative=True
    )
    if is_tensor(value) and value.array.ndim:
        raise ShapeError("index_fill fills with one number", got=str(list(value.static_shape)))
    count = input.shape[dim]
    named = ops.ScatterElements(full_like_shape(index, (count,), 0), index, ones_like(index))
    column = reshape(named, [count if d == dim else 1 for d in range(input.array.ndim)])
    return ops.Where(cast(column, bool_), stored_like(value, input), input)


@by_policy
def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """`input` with `values`, broadcast, at ``input[indices]``; with `accumulate` added, where repeated places add up.
    `torch.index_put`."""
    from ox.functions.creation import arange
    from ox.functions.indexing import get

    places = on_device_of(reshape(arange(input.numel()), input.shape), input)
    flat = get(places, tuple(slice(None) if i is None else i for i in indices))
    return _flat(input, flat, broadcast_to(_of_type(values, input, "index_put"), flat.shape), accumulate)


def put(input: Any, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """`input` with the elements of `source` at the places `index` of the flattened `input`, put or added.
    `torch.put`."""
    index = check_range(index, input.array.size, "put's index", negative=True)
    source = _of_type(source, input, "put")
    if source.array.size != index.array.size:
        raise ShapeError(
            "put needs an element for each place", expected=f"{index.array.size} elements", got=f"{source.array.size}"
        )
    return _flat(input, from_start(index, input.numel()), source, accumulate)


def _of_type(value: Any, x: Any, what: str) -> Any:
    value = value if is_tensor(value) else stored_like(value, x)
    if value.array.dtype != x.array.dtype:
        raise DTypeError(
            f"{what}: the values have another element type", expected=str(x.array.dtype), got=str(value.array.dtype)
        )
    return value


def _flat(x: Any, places: Any, values: Any, accumulate: bool) -> Tensor:
    kind = "add" if accumulate else "none"
    return reshape(_elements(reshape(x, -1), reshape(places, -1), reshape(values, -1), 0, kind), x.shape)


def masked_scatter(input: Any, mask: Any, source: Any) -> Tensor:
    """`input` with the elements of `source`, one after another, where `mask` is true. `torch.masked_scatter`.

    Raises:
        ShapeError: fewer elements than places.
    """
    mask = as_mask(mask, "masked_scatter's mask")
    source = _of_type(source, input, "masked_scatter")
    input, mask = broadcast_all(input, mask)
    if isinstance(mask.array, np.ndarray) and int(mask.array.sum()) > source.array.size:
        raise ShapeError(
            "masked_scatter runs out of elements",
            expected=f"{int(mask.array.sum())} or more",
            got=str(source.array.size),
        )
    if not source.array.size:
        return input
    one, zero = scalar(1, int64), scalar(0, int64)
    turn = ops.Sub(ops.CumSum(cast(reshape(mask, -1), int64), zero), one)
    taken = ops.Gather(reshape(source, -1), ops.Max(turn, zero), axis=0)
    return ops.Where(mask, reshape(taken, input.shape), input)


def select_scatter(input: Any, src: Any, dim: int, index: int) -> Tensor:
    """`input` with `src` as the slice at `index` along `dim`. `torch.select_scatter`."""
    dim = one_dim(dim, input.array.ndim)
    expected = [*input.static_shape[:dim], *input.static_shape[dim + 1 :]]
    if list(src.static_shape) != expected:
        raise ShapeError(
            "select_scatter: the source is no such slice", expected=str(expected), got=str(list(src.static_shape))
        )
    check_range(np.asarray(int(index)), input.static_shape[dim], "select_scatter's index", negative=True)
    end = None if index == -1 else index + 1
    return slice_scatter(input, unsqueeze(src, dim), dim, index, end)


def slice_scatter(input: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """`input` with `src` as the slice start:end:step along `dim`. `torch.slice_scatter`."""
    from ox.functions.creation import arange

    dim = one_dim(dim, input.array.ndim)
    part = (*[slice(None)] * dim, slice(start, end, step))
    expected = input.array[part].shape
    if src.static_shape != expected:
        raise ShapeError(
            "slice_scatter: the source is no such slice", expected=str(list(expected)), got=str(list(src.static_shape))
        )
    if step == 1 and not isinstance(input.shape[dim], Dim):
        first, last, _ = slice(start, end).indices(input.static_shape[dim])
        size = input.static_shape[dim]
        pieces = [narrow(input, dim, 0, first), src, narrow(input, dim, max(last, first), size - max(last, first))]
        joined = cat([p for p in pieces if p.static_shape[dim]] or [input], dim)
        return with_zero_gradient(joined, input) if last - first == size else joined  # nothing of the input is left
    places = on_device_of(arange(input.shape[dim])[slice(start, end, step)], input)
    return ops.ScatterElements(input, expand_index(places, dim, src.shape), cast(src, input.array.dtype), axis=dim)


def fill(input: Any, value: Any) -> Tensor:
    """The shape of `input` full of one number. `torch.fill`."""
    if is_tensor(value):
        return with_zero_gradient(broadcast_to(cast(value, input.array.dtype), input.shape), input)
    return with_zero_gradient(full_like(input, value), input)
