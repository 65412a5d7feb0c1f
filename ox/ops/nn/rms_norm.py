"""Normalization by size alone: RMSNormalization LpNormalization LRN."""

from typing import Any

from ox.core.broadcast import sum_to
from ox.core.constants import axes_tensor, constant
from ox.core.function import function
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, Array, T, V
from ox.devices.summation import mean_over, sum_over
from ox.dtypes import FLOATS
from ox.errors import ArgumentError, ShapeError
from ox.ops.elementwise.arithmetic import Abs, Add, Div, Mul, Pow, Sign, Sqrt, Sub
from ox.ops.elementwise.comparison import Equal, Where
from ox.ops.nn.normalization import as_type, computed_type, widely
from ox.ops.reduce.reduction import ReduceMean, ReduceSum

__all__ = ["LRN", "LpNormalization", "RMSNormalization"]


@operator(
    "Y",
    kind="normalization",
    T=FLOATS,
    V=FLOATS,
    ignore_fp_warnings=True,
    amp="float32",
    batching="axis",
    weights="scale",
)
def RMSNormalization(xp: XP, X: T, scale: V, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> V:
    """X / sqrt(mean(X²) + epsilon) * scale, with the mean over the dimensions from `axis` on.

    The work is done in float32, and for float64 in float64; Y has the type of scale. ONNX RMSNormalization,
    `torch.nn.functional.rms_norm`.
    """
    axes = tuple(range(axis % X.ndim, X.ndim))
    x = widely(X)
    size = mean_over(xp, x * x, axes, True)
    y = x / xp.sqrt(size + x.dtype.type(epsilon)) * widely(scale)
    if y.shape != X.shape:
        raise ShapeError(f"RMSNormalization has a scale {list(scale.shape)} for {list(X.shape)}")
    return y.astype(scale.dtype, copy=False)


@RMSNormalization.expansion
def _(X: TensorBase, scale: TensorBase, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> TensorBase:
    wide = computed_type(X.dtype)
    x = as_type(X, wide)
    size = ReduceMean(Mul(x, x), axes_tensor(range(axis % X.ndim, X.ndim)))
    y = Mul(Div(x, Sqrt(Add(size, constant(epsilon, x)))), as_type(scale, wide))
    return as_type(y, scale.dtype)


@RMSNormalization.gradient("X", "scale")
def _(
    g: TensorBase, X: TensorBase, scale: TensorBase, axis: int, epsilon: float, needs: tuple[bool, bool]
) -> tuple[TensorBase | None, TensorBase | None]:
    wide, start = computed_type(X.dtype), axis % X.ndim
    if X.dtype == scale.dtype and all(needs) and start > 0 and scale.ndim == X.ndim - start:
        made: tuple[TensorBase, TensorBase] = RMSNormalizationGradient(g, X, scale, axis=axis, epsilon=epsilon)
        return as_type(made[0], X.dtype), sum_to(as_type(made[1], X.dtype), scale.shape)
    inner = axes_tensor(range(start, X.ndim))
    x, g = as_type(X, wide), as_type(g, wide)
    inverse = Div(constant(1, x), Sqrt(Add(ReduceMean(Mul(x, x), inner, keepdims=1), constant(epsilon, x))))
    normal = Mul(x, inverse)
    to_x = to_scale = None
    if needs[0]:
        scaled = Mul(g, as_type(scale, wide))
        along = Mul(normal, ReduceMean(Mul(scaled, normal), inner, keepdims=1))
        to_x = as_type(Mul(Sub(scaled, along), inverse), X.dtype)
    if needs[1]:
        to_scale = as_type(sum_to(Mul(g, normal), scale.shape), scale.dtype)
    return to_x, to_scale


@function("dX dScale", kind="gradient", fused=True, T=FLOATS, amp="widest")
def RMSNormalizationGradient(g: T, X: T, scale: T, *, axis: int = -1, epsilon: float = 1e-5) -> tuple[T, T]:
    """The gradients of X and of a scale of X's normalized shape from a cotangent g; those of halves are computed in
    float32."""
    kind, wide = X.dtype, computed_type(X.dtype)
    outer, inner = axes_tensor(range(axis % X.ndim)), axes_tensor(range(axis % X.ndim, X.ndim))
    x, g = as_type(X, wide), as_type(g, wide)
    inverse = Div(constant(1, x), Sqrt(Add(ReduceMean(Mul(x, x), inner, keepdims=1), constant(epsilon, x))))
    normal, scaled = Mul(x, inverse), Mul(g, as_type(scale, wide))
    along = Mul(normal, ReduceMean(Mul(scaled, normal), inner, keepdims=1))
    to_x, to_scale = Mul(Sub(scaled, along), inverse), ReduceSum(Mul(g, normal), outer, keepdims=0)
    return as_type(to_x, kind), as_type(to_scale, kind)


@operator("output", kind="normalization", T=FLOATS, ignore_fp_warnings=True, amp="float32", batching="each")
def LpNormalization(xp: XP, input: T, *, axis: int = -1, p: int = 2) -> T:
    """The input divided by its sum of magnitudes (p=1) or its length (p=2) along an axis; 0 where that is 0.
    ONNX LpNormalization."""
    if p not in (1, 2):
        raise ArgumentError("LpNormalization has no such p", expected="1 or 2", got=str(p))
    x = widely(input)
    size = sum_over(xp, xp.absolute(x) if p == 1 else x * x, (axis % x.ndim,), True)
    size = size if p == 1 else xp.sqrt(size)
    y = x / xp.where(size == 0, x.dtype.type(1), size)
    return y.astype(input.dtype, copy=False)


@LpNormalization.gradient("input")
def _(g: TensorBase, input: TensorBase, axis: int, p: int) -> TensorBase:
    wide, along = computed_type(input.dtype), axes_tensor([axis])
    x, g = as_type(input, wide), as_type(g, wide)
    size = ReduceSum(Abs(x) if p == 1 else Mul(x, x), along, keepdims=1)
    none = Equal(size, constant(0, x))
    size = Where(none, constant(1, x), size)
    size = size if p == 1 else Sqrt(size)
    y = Div(x, size)
    slope = Sign(x) if p == 1 else y
    back = Div(Sub(g, Mul(slope, ReduceSum(Mul(g, y), along, keepdims=1))), size)
    return as_type(Where(none, constant(0, x), back), input.dtype)


@operator("Y", kind="normalization", T=FLOATS, ignore_fp_warnings=True, amp="float32", batching="each")
def LRN(xp: XP, X: T, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> T:
    """X / (bias + alpha/size · sum of X² over `size` channels around)^beta; X [N, C, ...]. ONNX LRN."""
    if X.ndim < 2:
        raise ShapeError("LRN needs channels", expected="X [N, C, ...]", got=str(list(X.shape)))
    x = widely(X)
    kind = x.dtype.type
    divisor = kind(bias) + kind(alpha / size) * _around(x * x, size)
    return (x / divisor ** kind(beta)).astype(X.dtype, copy=False)


def _around(x: Array, size: int) -> Array:
    """For each channel the sum over (size-1)//2 channels before it, itself, and size//2 after it."""
    total, channels, before = x.copy(), x.shape[1], (size - 1) // 2
    for shift in range(-before, size - before):
        here, there = max(0, -shift), max(0, shift)
        if shift and channels > abs(shift):
            total[:, here : channels - there] += x[:, there : channels - here]
    return total


@LRN.gradient("X")
def _(g: TensorBase, X: TensorBase, size: int, alpha: float, beta: float, bias: float) -> TensorBase:
    wide = computed_type(X.dtype)
    x, g = as_type(X, wide), as_type(g, wide)
    before = (size - 1) // 2
    divisor = Add(Mul(window_sum(Mul(x, x), before, size), constant(alpha / size, x)), constant(bias, x))
    power = Pow(divisor, constant(-beta, x))
    taken = window_sum(Mul(Mul(g, x), Div(power, divisor)), size - 1 - before, size)
    return as_type(Sub(Mul(g, power), Mul(Mul(x, taken), constant(2 * alpha * beta / size, x))), X.dtype)


def window_sum(x: TensorBase, before: int, size: int) -> Any:
    """The sum over `size` neighbours along axis 1, the first of them `before` places back; zeros beyond the ends."""
    along = axes_tensor([1])
    padded = OPS["Pad"](x, axes_tensor([before, size - 1 - before]), constant(0, x), along)
    total: TensorBase | None = None
    for i in range(size):
        stop = i - size + 1
        part = OPS["Slice"](padded, axes_tensor([i]), axes_tensor([stop if stop else 2**62]), along)
        total = part if total is None else Add(total, part)
    assert total is not None
    return total
