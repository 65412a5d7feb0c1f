"""Pooling over all places at once: GlobalAveragePool GlobalMaxPool GlobalLpPool."""

from ox.core.broadcast import expand_to, reshape_to
from ox.core.constants import zeros
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, T
from ox.core.upcast import in_float32
from ox.devices.summation import mean_over, sum_over
from ox.dtypes import FLOATS
from ox.ops.index.gather import ScatterElements, product_of
from ox.ops.nn.lp_pool import powers, slope

__all__ = ["GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"]


@operator("Y", kind="pooling", contraction=True, T=FLOATS, amp="widest", batching="images")
@in_float32
def GlobalAveragePool(xp: XP, X: T) -> T:
    """The mean of X [N, C, ...] over all but the first two dimensions; they stay, of size 1. ONNX GlobalAveragePool."""
    return mean_over(xp, X, tuple(range(2, X.ndim)), True)


@GlobalAveragePool.gradient("X")
def _(g: TensorBase, X_shape: tuple[int, ...]) -> TensorBase:
    return expand_to(g / product_of(X_shape[2:]), X_shape)


@operator("Y", kind="pooling", contraction=True, T=FLOATS, amp="widest", batching="images")
def GlobalMaxPool(xp: XP, X: T) -> T:
    """The largest value of X [N, C, ...] over all but the first two dimensions; they stay, of size 1. The first of
    equals takes the gradient, as under a MaxPool. ONNX GlobalMaxPool."""
    return xp.max(X, axis=tuple(range(2, X.ndim)), keepdims=True)


@GlobalMaxPool.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    flat = reshape_to(X, [*X.shape[:2], product_of(X.shape[2:])])
    place = OPS["ArgMax"](flat.detach(), axis=2)
    g = reshape_to(g, [*g.shape[:2], 1])
    return reshape_to(ScatterElements(zeros(flat.shape, g), place, g, axis=2), X.shape)


@operator("Y", kind="pooling", T=FLOATS, amp="float32", batching="each")
@in_float32
def GlobalLpPool(xp: XP, X: T, *, p: int = 2) -> T:
    """The p-norm of X [N, C, ...] over all but the first two dimensions; they stay, of size 1. ONNX GlobalLpPool."""
    return sum_over(xp, powers(xp, X, p), tuple(range(2, X.ndim)), True) ** (1 / p)


@GlobalLpPool.gradient("X")
def _(g: TensorBase, X: TensorBase, Y: TensorBase, p: int) -> TensorBase:
    return slope(g, X, Y, p, lambda each: each)
