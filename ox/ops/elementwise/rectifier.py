"""Rectifiers, straight above a threshold and flat, sloped or curved below: LeakyRelu PRelu ThresholdedRelu Shrink Elu
Selu Celu (Relu is an activation)."""

from ox.core.broadcast import sum_to
from ox.core.constants import constant
from ox.core.function import function
from ox.core.operator import operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS, INTEGERS, float16, float32, float64, int32, int64, uint32, uint64
from ox.errors import ShapeError
from ox.ops.elementwise.arithmetic import Exp, Mul
from ox.ops.elementwise.comparison import Greater, GreaterOrEqual, Less, Or, Where

__all__ = ["Celu", "Elu", "LeakyRelu", "PRelu", "Selu", "Shrink", "ThresholdedRelu"]


@operator("Y", kind="pointwise", T=FLOATS, amp="widest")
@in_float32
def LeakyRelu(xp: XP, X: T, *, alpha: float = 0.01) -> T:
    """X, below 0 times alpha. ONNX LeakyRelu."""
    bent = X * X.dtype.type(alpha)
    return xp.maximum(X, bent) if 0 <= alpha <= 1 else xp.where(X > 0, X, bent)


@LeakyRelu.gradient("X")
def _(g: TensorBase, X: TensorBase, alpha: float) -> TensorBase:
    return Where(Greater(X, constant(0, g)), g, Mul(g, constant(alpha, g)))


@operator("Y", kind="pointwise", T=(*FLOATS, int32, int64, uint32, uint64), amp="lower", weights="slope")
@in_float32
def PRelu(xp: XP, X: T, slope: T) -> T:
    """X, below 0 times a slope that broadcasts to it. ONNX PRelu."""
    bent = X * slope
    if bent.shape != X.shape:
        raise ShapeError(
            "PRelu: the slope does not broadcast to the input", expected=str(list(X.shape)), got=str(list(slope.shape))
        )
    return xp.where(X > 0, X, bent)


@PRelu.gradient("X")
def _(g: TensorBase, X: TensorBase, slope: TensorBase) -> TensorBase:
    return Where(Greater(X, constant(0, g)), g, Mul(g, slope))


@PRelu.gradient("slope")
def _(g: TensorBase, X: TensorBase, slope_shape: tuple[int, ...]) -> TensorBase:
    zero = constant(0, g)
    return sum_to(Where(Greater(X, zero), zero, Mul(g, X)), slope_shape)


@operator("Y", kind="pointwise", T=FLOATS, amp="widest")
@in_float32
def ThresholdedRelu(xp: XP, X: T, *, alpha: float = 1.0) -> T:
    """X where it is above alpha, else 0. ONNX ThresholdedRelu."""
    return xp.where(alpha < X, X, X.dtype.type(0))


@ThresholdedRelu.gradient("X")
def _(g: TensorBase, X: TensorBase, alpha: float) -> TensorBase:
    return Where(Greater(X, constant(alpha, g)), g, constant(0, g))


@operator("output", kind="pointwise", T=(float16, float32, float64, *INTEGERS), ignore_fp_warnings=True, amp="widest")
@in_float32
def Shrink(xp: XP, input: T, *, bias: float = 0.0, lambd: float = 0.5) -> T:
    """The input nearer to 0 by `bias` where it is farther from it than `lambd`, else 0. ONNX Shrink."""
    x = input if input.dtype.kind == "f" else input.astype(float64)
    y = xp.where(x < -lambd, x + x.dtype.type(bias), xp.where(x > lambd, x - x.dtype.type(bias), x.dtype.type(0)))
    return y.astype(input.dtype, copy=False)


@Shrink.gradient("input")
def _(g: TensorBase, input: TensorBase, lambd: float) -> TensorBase:
    outside = Or(Less(input, constant(-lambd if lambd else 0, g)), Greater(input, constant(lambd, g)))
    return Where(outside, g, constant(0, g))


@operator("Y", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Elu(xp: XP, X: T, *, alpha: float = 1.0) -> T:
    """X, below 0 alpha (exp(X) - 1). ONNX Elu."""
    return xp.where(X > 0, X, xp.expm1(xp.minimum(X, 0)) * X.dtype.type(alpha))


@Elu.gradient("X")
def _(g: TensorBase, X: TensorBase, alpha: float) -> TensorBase:
    return BelowZero(g, X, factor=alpha)


SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # as ONNX has them: float32


@operator("Y", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Selu(xp: XP, X: T, *, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> T:
    """gamma times Elu: with the default numbers activations keep mean 0 and variance 1. ONNX Selu."""
    return xp.where(X > 0, X, xp.expm1(xp.minimum(X, 0)) * X.dtype.type(alpha)) * X.dtype.type(gamma)


@Selu.gradient("X")
def _(g: TensorBase, X: TensorBase, alpha: float, gamma: float) -> TensorBase:
    return BelowZero(Mul(g, constant(gamma, g)), X, factor=alpha)


@operator("Y", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Celu(xp: XP, X: T, *, alpha: float = 1.0) -> T:
    """X, below 0 alpha (exp(X / alpha) - 1), whose slope has no step. ONNX Celu."""
    a = X.dtype.type(alpha)
    return xp.maximum(X, 0) + xp.minimum(xp.expm1(X / a) * a, 0)


@Celu.gradient("X")
def _(g: TensorBase, X: TensorBase, alpha: float) -> TensorBase:
    return BelowZero(g, X, rate=1 / alpha)


@function("dX", kind="pointwise", fused=True, T=FLOATS, amp="widest")
def BelowZero(g: T, X: T, *, factor: float = 1.0, rate: float = 1.0) -> T:
    """g, times `factor` exp(`rate` X) where X is not above 0: what arrives before an exponential rectifier."""
    zero = constant(0, g)
    below = Where(GreaterOrEqual(X, zero), zero, X)  # without a slope at 0, where Min would share it; NaN stays NaN
    bent = Exp(Mul(below, constant(rate, g)))
    return Where(Greater(X, zero), g, Mul(g, Mul(bent, constant(factor, g))))
