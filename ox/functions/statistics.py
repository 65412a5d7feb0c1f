"""Variance, and what stands in the middle: medians, quantiles, the most frequent value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.amp.policy import by_policy
from ox.core.constants import on_device_of, scalar
from ox.core.promotion import cast, upcast_half
from ox.core.symbolic import Dim
from ox.core.tensor import is_tensor
from ox.dtypes import bool_, float32, float64, int64, is_floating
from ox.errors import ArgumentError, DTypeError
from ox.functions.comparison import isinf, isnan, logical_and, logical_not
from ox.functions.dimension_arguments import Dims, one_dim, some_dims
from ox.functions.gather_select import gather
from ox.functions.operand_arguments import only_floats
from ox.functions.pointwise import div, maximum, where
from ox.functions.reductions import all, amax, any, argmax, count_nonzero, mean, sum
from ox.functions.return_types import ValuesIndices
from ox.functions.shapes import broadcast_to, narrow, permute, reshape, squeeze, unsqueeze
from ox.functions.sorting import sort

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["median", "mode", "nanmedian", "nanquantile", "quantile", "std", "std_mean", "var", "var_mean"]

METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


@by_policy
@upcast_half
def var(
    input: Any,
    dim: Dims | bool = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Variance; divides by the count less `correction`: 1, or with `unbiased=False` 0, where it is None. `torch.var`.

    Raises:
        DTypeError: integers or bools.
    """
    return var_mean(input, dim, unbiased, keepdim, correction=correction)[0]


@by_policy
@upcast_half
def std(
    input: Any,
    dim: Dims | bool = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Standard deviation; arguments as `var`. Its gradient at 0 is 0. `torch.std`."""
    return std_mean(input, dim, unbiased, keepdim, correction=correction)[0]


@by_policy
@upcast_half
def var_mean(
    input: Any,
    dim: Dims | bool = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Variance and mean; arguments as `var`. `torch.var_mean`."""
    only_floats("var", input)
    if isinstance(dim, bool):  # as in x.var(False)
        unbiased, dim = dim, None
    if correction is None:
        correction = int(unbiased)
    middle = mean(input, dim, True)
    centred = ops.Sub(input, middle)
    total = sum(ops.Mul(centred, centred), dim, keepdim)
    rest = mean(centred.detach(), dim, keepdim)  # of a mean that was rounded: its square is in the sum, once a number
    count: Any = 1
    for d in some_dims(dim, input.array.ndim) if input.array.ndim else ():
        count = count * input.shape[d]
    taken = ops.Mul(ops.Mul(rest, rest), scalar(count, input.array.dtype))
    total = ops.Sub(total, ops.Min(taken, total.detach()))
    left: Any = scalar(count, input.array.dtype) - correction if isinstance(count, Dim) else count - correction
    spread = div(total, maximum(left, 0.0) if isinstance(count, Dim) else scalar(max(left, 0), input.array.dtype))
    return spread, middle if keepdim else reshape(middle, *spread.shape)


@by_policy
@upcast_half
def std_mean(
    input: Any,
    dim: Dims | bool = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean; arguments as `var`. `torch.std_mean`."""
    spread, middle = var_mean(input, dim, unbiased, keepdim, correction=correction)
    if spread.node is None:
        return ops.Sqrt(spread), middle
    none = spread == 0  # where the slope of the root is infinite
    return where(none, 0.0, ops.Sqrt(where(none, 1.0, spread))), middle


def _along(x: Any, dim: Any) -> tuple[Tensor, int, bool]:
    """The tensor and the dimension to work along; all elements in a row where none is given."""
    if dim is None or not x.array.ndim:
        if dim is not None:
            one_dim(dim, 0)
        return reshape(x, -1), 0, True
    return x, one_dim(dim, x.array.ndim), False


def _check_not_empty(x: Any, dim: int, what: str) -> None:
    if not x.static_shape[dim]:
        raise ArgumentError(f"a tensor without elements has no {what}", got=f"shape {list(x.static_shape)}")


def _median(x: Any, dim: Any, keepdim: bool, skip_nan: bool) -> Any:
    given, rank = dim, x.array.ndim
    if x.array.dtype == bool_:
        raise DTypeError("a median is for numbers", got="bool", hint="x.int()")
    x, dim, flat = _along(x, dim)
    if given is not None:
        _check_not_empty(x, dim, "median")
    elif not x.array.size:
        return mean(x)  # NaN, as PyTorch has it
    ordered = sort(x, dim)
    floats = is_floating(x.array.dtype)
    nans = any(isnan(x), dim, True)
    if floats and skip_nan:
        # NaN stands last: the middle of what is before it
        here = count_nonzero(logical_not(isnan(x)), dim)
        place = unsqueeze(ops.Div(maximum(here - 1, 0), scalar(2, int64)), dim)
    else:
        place = on_device_of(broadcast_to(scalar((x.shape[dim] - 1) // 2, int64), nans.shape), x)
    indices = gather(ordered.indices, dim, place)
    if floats and not skip_nan:
        indices = ops.Where(nans, argmax(cast(isnan(x), int64), dim, True), indices)
    values = gather(x, dim, indices)
    if given is None and values.node is not None:
        values = _shared(x, values.detach())
    if flat:
        shape = [1] * rank if keepdim and given is not None else []
        values, indices = reshape(values, shape), reshape(indices, shape)
    elif not keepdim:
        values, indices = squeeze(values, dim), squeeze(indices, dim)
    return values if given is None else ValuesIndices(values, indices)


def _shared(x: Tensor, value: Tensor) -> Tensor:
    """A value that stands among x [n], whose gradient is shared evenly by all that equal it."""
    equal = ops.Or(ops.Equal(x, value), ops.And(isnan(x), isnan(value)))
    return amax(where(equal, x, float("-inf")), 0, True)


def median(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two middle values: of all, or along `dim` with its place; NaN where there is one.
    `torch.median`."""
    return _median(input, dim, keepdim, False)


def nanmedian(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """As `median`, of the values that are not NaN. `torch.nanmedian`."""
    return _median(input, dim, keepdim, True)


def _quantile(name: str, input: Any, q: Any, dim: int | None, keepdim: bool, method: str, skip_nan: bool) -> Tensor:
    _check_quantile(name, input, q, method)
    dtype, rank = input.array.dtype, input.array.ndim
    many = is_tensor(q) and q.array.ndim == 1
    x, along, flat = _along(input, dim)
    _check_not_empty(x, along, "quantile")
    values, nans = sort(x, along).values, isnan(x)
    wanted = reshape(q if is_tensor(q) else scalar(float(q), dtype), -1)
    wanted = reshape(wanted, [-1 if d == along else 1 for d in range(x.array.ndim)])
    # NaN stands last; the places between which each value lies, of all or of what is no NaN
    last = sum(cast(logical_not(nans), dtype), along, True) if skip_nan else scalar(x.shape[along], dtype)
    place = maximum((last - 1) * wanted, 0.0)
    place = where((all if skip_nan else any)(nans, along, True), scalar(x.shape[along], dtype) - 1, place)
    found = _between(values, along, ops.Round(place) if method == "nearest" else place, method)
    if flat:
        return reshape(found, ([-1] if many else []) + ([1] * rank if keepdim else []))
    if not many:
        return found if keepdim else squeeze(found, along)
    found = permute(found, along, *[d for d in range(rank) if d != along])
    return unsqueeze(found, along + 1) if keepdim else found


def _check_quantile(name: str, input: Any, q: Any, method: str) -> None:
    if method not in METHODS:
        raise ArgumentError(f"{name} does not know interpolation={method!r}", expected=str(METHODS))
    if input.array.dtype not in (float32, float64):
        raise DTypeError(f"{name} is for float32 and float64", got=str(input.array.dtype))
    if is_tensor(q) and (q.array.ndim > 1 or q.array.dtype != input.array.dtype):
        raise ArgumentError(
            f"{name}'s q is a number, or one dimension of them in the input's type",
            expected=f"{input.array.dtype} [] or [k]",
            got=f"{q.array.dtype} {list(q.static_shape)}",
        )
    shares = q.array if is_tensor(q) else q
    if isinstance(shares, (int, float, np.ndarray)) and not np.all((shares >= 0) & (shares <= 1)):
        raise ArgumentError(f"{name}'s q is between 0 and 1", got=str(shares))


def _between(values: Tensor, dim: int, place: Tensor, method: str) -> Tensor:
    """What lies at places that need not be whole, along `dim` of ordered values."""
    shape = [place.shape[d] if d == dim else size for d, size in enumerate(values.shape)]

    def at(whole: Tensor) -> Tensor:
        return gather(values, dim, cast(broadcast_to(whole, shape), int64))

    if method == "higher":
        return at(ops.Ceil(place))
    low = at(ops.Floor(place))
    if method in ("lower", "nearest"):
        return low
    high = at(ops.Ceil(place))
    share = ops.Sub(place, ops.Floor(place))
    if method == "midpoint":
        share = cast(share > 0, share.array.dtype) * 0.5
    return ops.Where(isinf(low), low, ops.Add(low, ops.Mul(share, ops.Sub(high, low))))  # between equal infinities, too


@by_policy
def quantile(
    input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The values below which the share `q` (a number, or a tensor [k], which gives a first dimension) of all, or of
    those along `dim`, lies. `torch.quantile`.

    Raises:
        ArgumentError: a share outside 0 to 1, another interpolation, or no elements.
        DTypeError: other types than float32 and float64.
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@by_policy
def nanquantile(
    input: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """As `quantile`, of the values that are not NaN. `torch.nanquantile`."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


def mode(input: Any, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent value along `dim`, of equally frequent ones the smallest, and its last index. A NaN equals
    nothing: it is the mode where it comes first and no number comes twice, as in PyTorch. Compares each element with
    each other. `torch.mode`."""
    rank = input.array.ndim
    x, dim, _ = _along(input, dim)
    _check_not_empty(x, dim, "mode")
    ordered = sort(x, dim).values
    count = sum(cast(unsqueeze(ordered, dim + 1) == unsqueeze(ordered, dim), int64), dim + 1)
    values = gather(ordered, dim, argmax(count, dim, True))
    found = ops.ArgMax(cast(x == values, int64), axis=dim, select_last_index=1)
    if is_floating(x.array.dtype):
        alone = logical_and(isnan(narrow(x, dim, 0, 1)), amax(count, dim, True) <= 1)
        found = where(alone, 0, found)
    values = gather(x, dim, found)
    if not rank:
        return ValuesIndices(reshape(values, []), reshape(found, []))
    return ValuesIndices(values, found) if keepdim else ValuesIndices(squeeze(values, dim), squeeze(found, dim))
