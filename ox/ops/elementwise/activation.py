"""Activations: Relu Tanh Sigmoid Erf Gelu Softmax LogSoftmax Hardmax."""

from math import pi, sqrt

from ox.core.constants import axes_tensor, constant
from ox.core.function import function
from ox.core.operator import operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, Array, T
from ox.core.upcast import in_float32
from ox.devices.summation import sum_over
from ox.dtypes import FLOATS, SIGNED
from ox.errors import ArgumentError
from ox.ops.elementwise.arithmetic import Add, Exp, Mul, Neg, Sub
from ox.ops.elementwise.comparison import LessOrEqual, Where, nothing
from ox.ops.elementwise.erf import erf
from ox.ops.reduce.reduction import ReduceSum

__all__ = ["Erf", "Gelu", "Hardmax", "LogSoftmax", "Relu", "Sigmoid", "Softmax", "Tanh"]


@operator("Y", kind="pointwise", contraction=True, T=(*FLOATS, *SIGNED), amp="widest")
def Relu(xp: XP, X: T) -> T:
    """max(X, 0); its gradient at 0 is 0. ONNX Relu."""
    return xp.maximum(X, X.dtype.type(0))


@Relu.gradient("X")
def _(g: TensorBase, Y: TensorBase) -> TensorBase:
    return ReluGradient(g, Y)


@function("dX", kind="pointwise", fused=True, T=FLOATS, amp="widest")
def ReluGradient(g: T, Y: T) -> T:
    """g where Relu's output Y is above 0 (or NaN), else 0."""
    zero = constant(0, g)
    return Where(LessOrEqual(Y, zero), zero, g)


@ReluGradient.fast
def _(xp: XP, g: Array, Y: Array) -> Array:
    return xp.where(Y <= 0, g.dtype.type(0), g)


@operator("output", kind="pointwise", contraction=True, T=FLOATS, amp="widest")
def Tanh(xp: XP, input: T) -> T:
    """Hyperbolic tangent. ONNX Tanh."""
    return xp.tanh(input)


@Tanh.gradient("input")
def _(g: TensorBase, output: TensorBase) -> TensorBase:
    return TanhGradient(g, output)


@function("dX", kind="pointwise", fused=True, T=FLOATS, amp="widest")
def TanhGradient(g: T, Y: T) -> T:
    """g times the slope of Tanh where its output is Y."""
    return Mul(g, Sub(constant(1, g), Mul(Y, Y)))


@TanhGradient.fast
def _(xp: XP, g: Array, Y: Array) -> Array:
    return g * (1 - Y * Y)


@operator("Y", kind="pointwise", contraction=True, T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Sigmoid(xp: XP, X: T) -> T:
    """1 / (1 + exp(-X)). ONNX Sigmoid."""
    y = xp.asarray(xp.negative(X))
    xp.exp(y, out=y)
    y += 1
    return xp.reciprocal(y, out=y)


@Sigmoid.gradient("X")
def _(g: TensorBase, Y: TensorBase) -> TensorBase:
    return SigmoidGradient(g, Y)


@function("dX", kind="pointwise", fused=True, T=FLOATS, amp="widest")
def SigmoidGradient(g: T, Y: T) -> T:
    """g times the slope of Sigmoid where its output is Y."""
    return Mul(g, Sub(Y, Mul(Y, Y)))


@SigmoidGradient.fast
def _(xp: XP, g: Array, Y: Array) -> Array:
    return g * (Y - Y * Y)


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Erf(xp: XP, input: T) -> T:
    """The error function, 2/sqrt(pi) times the integral of exp(-t²) from 0. ONNX Erf."""
    return erf(xp, input)


@Erf.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Mul(Mul(g, constant(2 / sqrt(pi), g)), Exp(Neg(Mul(input, input))))


@operator("Y", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Gelu(xp: XP, X: T, *, approximate: str = "none") -> T:
    """X times the normal distribution function of X; `approximate="tanh"` for the formula with tanh. ONNX Gelu."""
    if approximate == "none":
        y = erf(xp, X * X.dtype.type(sqrt(0.5)))
    elif approximate == "tanh":
        y = xp.asarray(xp.multiply(X, X))
        y *= CUBE
        y += 1
        y *= X
        y *= SLOPE
        xp.tanh(y, out=y)
    else:
        raise ArgumentError(
            f"Gelu does not know the approximation {approximate!r}", expected="'none' or 'tanh'", got=repr(approximate)
        )
    y += 1
    y *= 0.5  # first: twice a large X may be infinite
    y *= X
    return y


SLOPE, CUBE = sqrt(2 / pi), 0.044715


@Gelu.expansion
def _(X: TensorBase, *, approximate: str = "none") -> TensorBase:
    if approximate == "none":
        gate = Erf(Mul(X, constant(sqrt(0.5), X)))
    else:
        gate = Tanh(Mul(Mul(X, Add(Mul(Mul(X, X), constant(CUBE, X)), constant(1, X))), constant(SLOPE, X)))
    return Mul(Mul(X, constant(0.5, X)), Add(gate, constant(1, X)))


@Gelu.gradient("X")
def _(g: TensorBase, X: TensorBase, approximate: str) -> TensorBase:
    return GeluGradient(g, X, approximate=approximate)


@function("dX", kind="pointwise", fused=True, T=FLOATS, amp="widest")
def GeluGradient(g: T, X: T, *, approximate: str = "none") -> T:
    """g times the slope of Gelu at X."""
    one = constant(1, g)
    if approximate == "none":
        u = Mul(X, constant(sqrt(0.5), g))
        slope = Mul(Mul(u, Exp(Neg(Mul(u, u)))), constant(2 / sqrt(pi), g))
        total = Add(Add(Erf(u), slope), one)
    else:
        square = Mul(X, X)
        t = Tanh(Mul(Mul(X, constant(SLOPE, g)), Add(Mul(square, constant(CUBE, g)), one)))
        inner = Mul(Mul(X, constant(SLOPE, g)), Add(Mul(square, constant(3 * CUBE, g)), one))
        total = Add(Add(t, one), Mul(Sub(one, Mul(t, t)), inner))
    return Mul(Mul(g, constant(0.5, g)), total)


@operator(
    "output", kind="normalization", contraction=True, T=FLOATS, ignore_fp_warnings=True, amp="float32", batching="axis"
)
@in_float32
def Softmax(xp: XP, input: T, *, axis: int = -1) -> T:
    """exp(input) normalized to sum 1 along an axis. ONNX Softmax."""
    if not input.size:
        return input.copy()
    y = xp.asarray(input - input.max(axis=axis, keepdims=True))
    xp.exp(y, out=y)
    y /= sum_over(xp, y, (axis % y.ndim,), True)
    return y


@Softmax.gradient("input")
def _(g: TensorBase, output: TensorBase, axis: int) -> TensorBase:
    return SoftmaxGradient(g, output, axis=axis)


@function("dX", kind="gradient", fused=True, T=FLOATS, amp="widest")
def SoftmaxGradient(g: T, Y: T, *, axis: int = -1) -> T:
    """What arrives at Softmax's input when g arrives at its output Y."""
    product = Mul(g, Y)
    return Sub(product, Mul(Y, ReduceSum(product, axes_tensor([axis]), keepdims=1)))


@operator("output", kind="normalization", T=FLOATS, ignore_fp_warnings=True, amp="float32", batching="axis")
@in_float32
def LogSoftmax(xp: XP, input: T, *, axis: int = -1) -> T:
    """log(Softmax(input)), computed without the quotient. ONNX LogSoftmax."""
    if not input.size:
        return input.copy()
    y = xp.asarray(input - input.max(axis=axis, keepdims=True))
    y -= xp.log(sum_over(xp, xp.exp(y), (axis % y.ndim,), True))
    return y


@LogSoftmax.gradient("input")
def _(g: TensorBase, output: TensorBase, axis: int) -> TensorBase:
    return LogSoftmaxGradient(g, output, axis=axis)


@function("dX", kind="gradient", fused=True, T=FLOATS, amp="widest")
def LogSoftmaxGradient(g: T, Y: T, *, axis: int = -1) -> T:
    """What arrives at LogSoftmax's input when g arrives at its output Y."""
    return Sub(g, Mul(Exp(Y), ReduceSum(g, axes_tensor([axis]), keepdims=1)))


@operator("output", kind="normalization", T=FLOATS, amp="widest", batching="axis")
def Hardmax(xp: XP, input: T, *, axis: int = -1) -> T:
    """1 at the first greatest value along an axis, else 0; its gradient is 0. ONNX Hardmax."""
    if not input.size:
        return input.copy()
    axis %= input.ndim
    places = xp.arange(input.shape[axis]).reshape([-1, *[1] * (input.ndim - axis - 1)])
    return (places == xp.expand_dims(input.argmax(axis=axis), axis)).astype(input.dtype)


@Hardmax.gradient("input")
def _(g: TensorBase) -> TensorBase:
    return nothing(g)
