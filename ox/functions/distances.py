"""Distances and angles between vectors: cdist, pdist, pairwise_distance, cosine_similarity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import ops
from ox.amp.policy import by_policy
from ox.core.constants import on_device_of, scalar
from ox.core.promotion import promote_operands, upcast_half
from ox.dtypes import is_floating
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.functions.diagonals import triu_indices
from ox.functions.dimension_arguments import one_dim
from ox.functions.index_arguments import broadcast_all
from ox.functions.operand_arguments import floating
from ox.functions.pointwise import maximum, where
from ox.functions.reductions import amax, sum
from ox.functions.shapes import squeeze, transpose, unsqueeze

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["cdist", "cosine_similarity", "pairwise_distance", "pdist"]

MANY = 25  # rows from which a product of matrices is used, as in PyTorch


def _length(x: Any, p: float, dim: int, keepdim: bool = False) -> Tensor:
    """The p-norm along a dimension, with a gradient of zero at zero."""
    size = ops.Abs(x)
    if p == float("inf"):
        return sum(size, dim, keepdim) if 0 in size.static_shape[dim:][:1] else amax(size, dim, keepdim)
    if p == 0:
        return sum(ops.Where(size != 0, scalar(1, x.array.dtype), size), dim, keepdim)  # its gradient is 0
    if p == 1:
        return sum(size, dim, keepdim)
    if p == 2:
        return _root(sum(ops.Mul(x, x), dim, keepdim))
    none = size == 0
    powers = where(none, 0.0, where(none, 1.0, size) ** p)
    total = sum(powers, dim, keepdim)
    none = total == 0
    return where(none, 0.0, where(none, 1.0, total) ** (1 / p))


def _between(difference: Any, p: float, dim: int) -> Tensor:
    """As `_length`; of p = inf each of equally great differences has the whole gradient, as PyTorch's cdist has it."""
    if p != float("inf") or difference.node is None or 0 in difference.static_shape[dim:][:1]:
        return _length(difference, p, dim)
    size = ops.Abs(difference)
    most = amax(size.detach(), dim, True)
    nothing = ops.Sub(size, size.detach())
    slopes = sum(ops.Where(ops.Equal(size, most), nothing, scalar(0, size.array.dtype)), dim)
    return ops.Add(squeeze(most, dim), slopes)


def _root(squares: Any) -> Tensor:
    """A square root whose gradient is zero at zero."""
    none = squares <= 0
    return where(none, 0.0, ops.Sqrt(where(none, 1.0, squares)))


def _floats(what: str, *tensors: Any) -> None:
    for x in tensors:
        if not is_floating(x.array.dtype):
            raise DTypeError(f"{what} takes floats", got=str(x.array.dtype), hint="x.float()")


def _order(p: float) -> float:
    if p < 0:
        raise ArgumentError("a distance has an order of 0 or more", got=f"p={p}")
    return float(p)


@by_policy
@upcast_half
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The p-norm of the difference of each row of `x1` [..., P, M] and each of `x2` [..., R, M]: [..., P, R].
    `torch.cdist`.

    With p = 2 and more than 25 rows it is made of a product of matrices, less exact where rows are nearly equal, unless
    `compute_mode` says "donot_use_mm_for_euclid_dist".
    """
    _floats("cdist", x1, x2)
    p = _order(p)
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    if compute_mode not in modes:
        raise ArgumentError(f"cdist has no mode {compute_mode!r}", expected=", ".join(modes))
    if x1.array.ndim < 2 or x2.array.ndim < 2 or x1.static_shape[-1] != x2.static_shape[-1]:
        raise ShapeError(
            "cdist takes rows of one length",
            expected="[..., P, M] and [..., R, M]",
            got=f"{list(x1.static_shape)} and {list(x2.static_shape)}",
        )
    x1, x2 = promote_operands(x1, x2)
    many = max(x1.static_shape[-2], x2.static_shape[-2]) > MANY
    if p == 2 and (compute_mode == modes[1] or (compute_mode == modes[0] and many)):
        squares = unsqueeze(sum(ops.Mul(x1, x1), -1), -1) + unsqueeze(sum(ops.Mul(x2, x2), -1), -2)
        return _root(squares - ops.MatMul(x1, transpose(x2, -1, -2)) * 2)
    return _between(ops.Sub(unsqueeze(x1, -2), unsqueeze(x2, -3)), p, -1)


@by_policy
@upcast_half
def pdist(input: Any, p: float = 2) -> Tensor:
    """The p-norms of the differences of all pairs of rows [N, M], in order: [N(N - 1)/2]. `torch.pdist`."""
    _floats("pdist", input)
    if input.array.ndim != 2:
        raise ShapeError("pdist takes rows", expected="[N, M]", got=str(list(input.static_shape)))
    pairs = on_device_of(triu_indices(input.shape[0], input.shape[0], 1), input)
    first, second = pairs[0], pairs[1]
    return _between(ops.Sub(ops.Gather(input, first), ops.Gather(input, second)), _order(p), 1)


@by_policy
@upcast_half
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension. `torch.nn.functional.pairwise_distance`."""
    return _length(floating(x1 - x2 + eps), float(p), -1, keepdim)


@by_policy
@upcast_half
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`; lengths below `eps` count as `eps`.
    `torch.nn.functional.cosine_similarity`."""
    _floats("cosine_similarity", x1, x2)
    x1, x2 = broadcast_all(*promote_operands(x1, x2))
    dim = one_dim(dim, x1.array.ndim)
    least = scalar(eps, x1.array.dtype)
    lengths = [maximum(_length(x, 2, dim), least) for x in (x1, x2)]
    return sum(ops.Mul(x1, x2), dim) / (lengths[0] * lengths[1])
