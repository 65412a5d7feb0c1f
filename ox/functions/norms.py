"""Norms of vectors, and distances."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ox import ops
from ox.amp.policy import by_policy
from ox.core.constants import scalar
from ox.core.promotion import cast, upcast_half
from ox.dtypes import HALF_TYPES, DType, float32
from ox.errors import ArgumentError
from ox.functions.dimension_arguments import Dims, one_dim
from ox.functions.movement import movedim
from ox.functions.operand_arguments import only_floats
from ox.functions.out_argument import write
from ox.functions.pointwise import pow, where
from ox.functions.reductions import amax, amin, axes_of, sum
from ox.functions.shapes import unsqueeze
from ox.ops.linalg.factorization import SVD

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["dist", "norm", "renorm"]


def vector_norm(
    input: Any, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The norm of order `ord` over dimensions: any number, inf or -inf; 0 counts what is not zero.
    `torch.linalg.vector_norm`, ONNX ReduceL1 and ReduceL2.

    Where a norm is zero, so is its gradient.

    Raises:
        DTypeError: integers or bools.
        ArgumentError: there is nothing of which to take the greatest.
    """
    input = input if dtype is None else cast(input, dtype)
    only_floats("a norm", input)
    if ord == 2:
        return ops.ReduceL2(input, axes_of(input, dim), keepdims=int(keepdim))
    if ord == 1:
        return ops.ReduceL1(input, axes_of(input, dim), keepdims=int(keepdim))
    size = ops.Abs(input)
    if ord in (inf, -inf):
        if ord > 0 and not input.array.size:  # of nothing 0, as of other norms
            return sum(size, dim, keepdim)
        return (amax if ord > 0 else amin)(size, dim, keepdim)
    if ord == 0:
        # not a Cast, which no gradient follows: this one's is 0
        return sum(ops.Where(size != 0, scalar(1, input.array.dtype), size), dim, keepdim)
    if input.array.dtype in HALF_TYPES:  # whose powers soon are infinite
        return cast(vector_norm(cast(input, float32), ord, dim, keepdim), input.array.dtype)
    if input.node is None:
        return pow(sum(pow(size, ord), dim, keepdim), 1 / ord)
    # the power of 0 has a slope of 0 or infinity; where it is infinite PyTorch's gradient is 0, too
    one, none = scalar(1, input.array.dtype), size == 0
    powers = where(none, 0.0 if ord > 0 else inf, pow(ops.Where(none, one, size), ord))
    total = sum(powers, dim, keepdim)
    flat = total == 0
    return where(flat, 0.0 if ord > 0 else inf, pow(ops.Where(flat, one, total), 1 / ord))


def norm(
    input: Any,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    out: Any = None,
    dtype: DType | None = None,
) -> Tensor:
    """The p-norm over dimensions; "fro" and None mean 2; "nuc" is the sum of the singular values of the matrices in two
    dimensions; as `ox.linalg.vector_norm`. `torch.norm`.

    Raises:
        DTypeError: integers or bools.
        ArgumentError: another word for `p`, or "nuc" over other than two dimensions.
    """
    if out is not None:
        return write(norm(input, p, dim, keepdim, dtype=dtype), out, "norm")
    if p == "nuc":
        return _nuclear(input, dim, keepdim, dtype)
    if isinstance(p, str) and p != "fro":
        raise ArgumentError(f"norm does not know p={p!r}", expected="a number, 'fro' or 'nuc'")
    return vector_norm(input, 2 if p is None or isinstance(p, str) else p, dim, keepdim, dtype=dtype)


def _nuclear(input: Any, dim: Dims, keepdim: bool, dtype: DType | None) -> Tensor:
    """The sum of the singular values of the matrices in two dimensions."""
    input = input if dtype is None else cast(input, dtype)
    only_floats("norm", input)
    rank = input.array.ndim
    dims = list(range(rank)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [one_dim(d, rank) for d in dims]
    if len(dims) != 2 or dims[0] == dims[1]:
        raise ArgumentError("the nuclear norm is of matrices", expected="two dimensions", got=str(dims))
    total = sum(SVD(movedim(input, dims, (-2, -1)))[1], -1)
    for d in sorted(dims) if keepdim else ():
        total = unsqueeze(total, d)
    return total


@by_policy
@upcast_half
def dist(input: Any, other: Any, p: float = 2) -> Tensor:
    """The p-norm of the difference of all elements. `torch.dist`."""
    return vector_norm(input - other, p)


@by_policy
@upcast_half
def renorm(input: Any, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along `dim` whose p-norm is above `maxnorm` are scaled down to it. `torch.renorm`.

    Raises:
        DTypeError: integers or bools.
        ArgumentError: a tensor of fewer than two dimensions, or a norm that is not positive.
    """
    only_floats("renorm", input)
    rank = input.array.ndim
    if rank < 2:
        raise ArgumentError("renorm takes two dimensions or more", got=str(rank))
    if p <= 0 or maxnorm < 0:
        raise ArgumentError("renorm takes a positive p and maxnorm", got=f"p={p}, {maxnorm}")
    dim = one_dim(dim, rank)
    size = vector_norm(input, p, [d for d in range(rank) if d != dim], True)
    dtype = input.array.dtype
    scale = ops.Div(scalar(maxnorm, dtype), ops.Add(size, scalar(1e-7, dtype)))
    return ops.Mul(input, ops.Where(size > maxnorm, scale, scalar(1, dtype)))
