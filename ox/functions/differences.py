"""Differences and areas along a dimension, and covariance: diff, gradient, trapezoid, cov, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.core.constants import scalar
from ox.core.operator import OPS
from ox.core.promotion import cast, promote_operands, upcast_half
from ox.core.tensor import is_tensor
from ox.dtypes import bool_, int64, is_floating
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.functions.comparison import ne
from ox.functions.dimension_arguments import one_dim
from ox.functions.operand_arguments import floating
from ox.functions.pointwise import clamp, div
from ox.functions.reductions import mean, sum
from ox.functions.shapes import cat, narrow, reshape, transpose, unsqueeze

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["corrcoef", "cov", "cumulative_trapezoid", "diff", "gradient", "trapezoid", "trapz"]


def _ends(x: Any, dim: int) -> tuple[Any, Any]:
    """All but the first, all but the last along a dimension."""
    n = x.shape[dim]
    return narrow(x, dim, 1, n - 1), narrow(x, dim, 0, n - 1)


def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """The n-th difference of neighbours along `dim`; of bools, whether they differ. `torch.diff`."""
    if not input.array.ndim:
        raise ShapeError("diff needs a dimension", got="[]")
    if n < 0:
        raise ArgumentError("diff needs an order of 0 or more", got=str(n))
    dim = one_dim(dim, input.array.ndim)
    parts = [p for p in (prepend, input, append) if p is not None] if n else [input]
    input = cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        if not input.static_shape[dim]:
            break
        behind, before = _ends(input, dim)
        input = ne(behind, before) if input.array.dtype == bool_ else ops.Sub(behind, before)
    return input


def _areas(y: Any, x: Any, dx: Any, dim: int) -> Tensor:
    """Twice the area under each pair of neighbours; whole numbers in their own type, which wraps around."""
    if y.array.dtype == bool_:
        y = y.float()
    if not y.static_shape[dim]:
        return y
    behind, before = _ends(y, dim)
    both = ops.Add(behind, before)
    if x is None:
        return both if dx in (None, 1) else both * dx
    if x.array.ndim == 1 and y.array.ndim > 1:
        if x.static_shape[0] != y.static_shape[dim]:
            raise ShapeError(
                "trapezoid needs a place for each value",
                expected=f"[{y.static_shape[dim]}]",
                got=str(list(x.static_shape)),
            )
        x = reshape(x, [x.shape[0] if d == dim else 1 for d in range(y.array.ndim)])
    last = dim - y.array.ndim
    return both * diff(x, dim=last)


@upcast_half
def trapezoid(y: Any, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The area under `y` along `dim` by the rule of trapezoids, at places `x` or at distances `dx`.
    `torch.trapezoid`; the products of whole numbers and whole places wrap around in their type, as PyTorch's do."""
    dim = _some_line(y, dim)
    _one_of(x, dx)
    if x is None and not is_floating(y.array.dtype):
        y = y.long()
    return sum(_areas(y, x, dx, dim), dim) / 2


@upcast_half
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The running total of the areas that `trapezoid` sums. `torch.cumulative_trapezoid`."""
    dim = _some_line(y, dim)
    _one_of(x, dx)
    areas = _areas(y, x, dx, dim)
    areas = areas if is_floating(areas.array.dtype) else areas.long()
    return ops.CumSum(areas, scalar(dim, int64)) / 2


def _some_line(y: Any, dim: int) -> int:
    if not y.array.ndim:
        raise ShapeError("trapezoid needs a dimension", got="[]")
    return one_dim(dim, y.array.ndim)


def _one_of(x: Any, dx: Any) -> None:
    if x is not None and (is_tensor(dx) or dx != 1):
        raise ArgumentError("trapezoid takes places x or a distance dx", got="both")


trapz = trapezoid


@upcast_half
def gradient(input: Any, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """The slope along each dimension by central differences, at the ends by one-sided ones of first or second order.
    `torch.gradient`.

    Args:
        spacing: the distance of neighbours, one for all (None: 1) or one a dimension, or vectors of places.
    """
    dims = list(range(input.array.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [one_dim(d, input.array.ndim) for d in dims]
    spacing = 1 if spacing is None else spacing
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(set(dims)) != len(dims):
        raise ArgumentError("gradient takes a dimension once", got=str(dims))
    if len(steps) != len(dims) or edge_order not in (1, 2):
        raise ArgumentError(
            "gradient needs a spacing for each dimension, and an edge_order of 1 or 2",
            got=f"{len(steps)} for {len(dims)}, {edge_order=}",
        )
    input = input if is_floating(input.array.dtype) else input.float()
    return tuple(_slope(input, d, step, edge_order) for d, step in zip(dims, steps, strict=True))


def _slope(x: Any, dim: int, step: Any, edge_order: int) -> Tensor:
    n = x.shape[dim]
    if x.static_shape[dim] <= edge_order:
        raise ShapeError(f"gradient needs more than {edge_order} places", got=str(list(x.static_shape)))
    places = is_tensor(step) and step.array.ndim
    if not places:
        widths = None
        slopes = diff(x, dim=dim) / step
    else:
        if step.static_shape != (x.static_shape[dim],):
            raise ShapeError(
                "gradient needs a place for each value",
                expected=f"[{x.static_shape[dim]}]",
                got=str(list(step.static_shape)),
            )
        widths = reshape(diff(cast(step, x.array.dtype)), [n - 1 if d == dim else 1 for d in range(x.array.ndim)])
        slopes = diff(x, dim=dim) / widths
    behind, before = _ends(slopes, dim)
    if widths is None:
        middle, first, last = (behind + before) / 2, None, None
    else:
        later, earlier = _ends(widths, dim)
        middle = (before * later + behind * earlier) / (later + earlier)
        first, last = _at(earlier, dim, 0) / _at(later, dim, 0), _at(later, dim, -1) / _at(earlier, dim, -1)
    start, end = _at(slopes, dim, 0), _at(slopes, dim, -1)
    if edge_order == 2:
        # the slope at the end of the parabola through three places
        start = start + (start - _at(slopes, dim, 1)) * (0.5 if first is None else first / (first + 1))
        end = end + (end - _at(slopes, dim, -2)) * (0.5 if last is None else last / (last + 1))
    return cat([start, middle, end], dim)


def _at(x: Any, dim: int, place: int) -> Any:
    return narrow(x, dim, place, 1)


@upcast_half
def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """The covariance matrix of variables in rows, of observations in columns. `torch.cov`.

    Args:
        correction: what is taken from the count of observations.
        fweights: how often each observation comes.
        aweights: how much each observation weighs.
    """
    if input.array.ndim > 2:
        raise ShapeError("cov takes a matrix", got=str(list(input.static_shape)))
    input = floating(reshape(input, 1, -1) if input.array.ndim < 2 else input)
    if fweights is not None and is_floating(fweights.array.dtype):
        raise DTypeError("fweights of cov must be integers", expected="integers", got=str(fweights.array.dtype))
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            if given.static_shape != (input.static_shape[1],):
                raise ShapeError(
                    "cov needs a weight for each observation",
                    expected=f"[{input.static_shape[1]}]",
                    got=str(list(given.static_shape)),
                )
            if isinstance(given.array, np.ndarray) and (given.array < 0).any():
                raise ArgumentError("cov's weights are 0 or more", got=str(given.array.min()))
            weights = given if weights is None else weights * given
    if weights is None:
        centred = input - mean(input, 1, True)
        weighted, count = centred, scalar(input.shape[1] - correction, input.array.dtype)
    else:
        total = sum(weights)
        centred = input - sum(input * weights, 1, True) / total
        weighted, centred = promote_operands(centred * weights, centred)
        if aweights is None:
            count = total - correction
        else:
            count = total - sum(weights * aweights) * correction / total
    matrix = div(ops.MatMul(centred, transpose(weighted, 0, 1)), clamp(count, min=0))
    return reshape(matrix, []) if input.static_shape[0] == 1 else matrix


@upcast_half
def corrcoef(input: Any) -> Tensor:
    """The correlations of variables in rows, between -1 and 1. `torch.corrcoef`."""
    matrix = cov(input)
    if not matrix.array.ndim:
        return matrix / matrix
    from ox.functions.diagonals import diagonal

    spread = OPS["Sqrt"](diagonal(matrix))
    return clamp(matrix / unsqueeze(spread, 1) / spread, -1, 1)
