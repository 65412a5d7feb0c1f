"""Pooling over all places at once: GlobalAveragePool GlobalMaxPool GlobalLpPool."""

from typing import TYPE_CHECKING

from ox.dtypes import FLOATS
from ox.ops.broadcast import expand_to, reshape_to, zeros
from ox.ops.index import ScatterElements, product_of
from ox.ops.lp_pool import powers, slope
from ox.ops.numeric import widened
from ox.ops.operator import OPS, operator
from ox.ops.types import XP, T

if TYPE_CHECKING:
    from ox.tensor import Tensor


@operator("Y", T=FLOATS)
@widened
def GlobalAveragePool(xp: XP, X: T) -> T:
    """The mean of X [N, C, ...] over all but the first two dimensions; they stay, of size 1. ONNX GlobalAveragePool."""
    return xp.mean(X, axis=tuple(range(2, X.ndim)), keepdims=True)


@GlobalAveragePool.gradient("X")
def _(g: "Tensor", X_shape: tuple[int, ...]) -> "Tensor":
    return expand_to(g / product_of(X_shape[2:]), X_shape)


@operator("Y", T=FLOATS)
def GlobalMaxPool(xp: XP, X: T) -> T:
    """The largest value of X [N, C, ...] over all but the first two dimensions; they stay, of size 1. The first of
    equals takes the gradient, as under a MaxPool. ONNX GlobalMaxPool."""
    return xp.max(X, axis=tuple(range(2, X.ndim)), keepdims=True)


@GlobalMaxPool.gradient("X")
def _(g: "Tensor", X: "Tensor") -> "Tensor":
    flat = reshape_to(X, [*X.shape[:2], product_of(X.shape[2:])])
    place = OPS["ArgMax"](flat.detach(), axis=2)
    g = reshape_to(g, [*g.shape[:2], 1])
    return reshape_to(ScatterElements(zeros(flat.shape, g), place, g, axis=2), X.shape)


@operator("Y", T=FLOATS)
@widened
def GlobalLpPool(xp: XP, X: T, *, p: int = 2) -> T:
    """The p-norm of X [N, C, ...] over all but the first two dimensions; they stay, of size 1. ONNX GlobalLpPool."""
    return powers(xp, X, p).sum(axis=tuple(range(2, X.ndim)), keepdims=True) ** (1 / p)


@GlobalLpPool.gradient("X")
def _(g: "Tensor", X: "Tensor", Y: "Tensor", p: int) -> "Tensor":
    return slope(g, X, Y, p, lambda each: each)
