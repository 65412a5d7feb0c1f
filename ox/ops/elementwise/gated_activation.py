"""Smooth and piecewise gates: Softplus Softsign HardSigmoid HardSwish Mish Swish SwiGLU (Sigmoid and Gelu are
activations)."""

from ox.core.constants import constant
from ox.core.function import function
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, Array, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS, HALF_TYPES, float32, onnx_type
from ox.errors import ShapeError
from ox.ops.elementwise.activation import Sigmoid
from ox.ops.elementwise.arithmetic import Abs, Add, Div, Exp, Min, Mul, Sub
from ox.ops.elementwise.comparison import And, Greater, GreaterOrEqual, Less, Where

__all__ = ["HardSigmoid", "HardSwish", "Mish", "Silu", "Softplus", "Softsign", "SwiGLU", "Swish"]


@operator("Y", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="float32")
@in_float32
def Softplus(xp: XP, X: T) -> T:
    """log(1 + exp(X)), without overflow. ONNX Softplus."""
    y = xp.asarray(xp.absolute(X))
    xp.negative(y, out=y)
    xp.exp(y, out=y)
    xp.log1p(y, out=y)
    y += xp.maximum(X, 0)
    return y


@Softplus.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    return Mul(g, Sigmoid(X))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Softsign(xp: XP, input: T) -> T:
    """The input over 1 + its absolute value. ONNX Softsign."""
    return input / (1 + xp.absolute(input))


@Softsign.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    size = Add(Abs(input), constant(1, g))
    return Div(g, Mul(size, size))


@operator("Y", kind="pointwise", T=FLOATS, amp="widest")
@in_float32
def HardSigmoid(xp: XP, X: T, *, alpha: float = 0.2, beta: float = 0.5) -> T:
    """alpha X + beta held between 0 and 1. ONNX HardSigmoid."""
    kind = X.dtype.type
    return xp.clip(X * kind(alpha) + kind(beta), kind(0), kind(1))


@HardSigmoid.gradient("X")
def _(g: TensorBase, Y: TensorBase, alpha: float) -> TensorBase:
    zero = constant(0, g)
    between = And(Greater(Y, zero), Less(Y, constant(1, g)))
    return Where(between, Mul(g, constant(alpha, g)), zero)


@operator("Y", kind="pointwise", T=FLOATS, amp="widest")
@in_float32
def HardSwish(xp: XP, X: T) -> T:
    """X times HardSigmoid with alpha 1/6 and beta 1/2. ONNX HardSwish."""
    kind = X.dtype.type
    return X * xp.clip(X * kind(1 / 6) + kind(0.5), kind(0), kind(1))


@HardSwish.expansion
def _(X: TensorBase) -> TensorBase:
    return Mul(X, HardSigmoid(X, alpha=1 / 6, beta=0.5))


@HardSwish.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    return HardSwishGradient(g, X)


@function("dX", kind="pointwise", fused=True, T=FLOATS, amp="widest")
def HardSwishGradient(g: T, X: T) -> T:
    """g times the slope of HardSwish at X."""
    inside = Add(Mul(X, constant(1 / 3, g)), constant(0.5, g))
    outside = Where(Greater(X, constant(0, g)), g, constant(0, g))
    return Where(GreaterOrEqual(Abs(X), constant(3, g)), outside, Mul(g, inside))  # NaN stays NaN


@operator("Y", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Mish(xp: XP, X: T) -> T:
    """X tanh(Softplus(X)). ONNX Mish."""
    # tanh(log(1 + n)) = (n² + 2n) / (n² + 2n + 2); from 20 on that is 1, and more would overflow
    n = xp.asarray(xp.minimum(X, X.dtype.type(20)))
    xp.exp(n, out=n)
    u = n + 2
    u *= n
    xp.add(u, 2, out=n)
    u /= n
    u *= X
    return u


@Mish.expansion
def _(X: TensorBase) -> TensorBase:
    return Mul(X, OPS["Tanh"](Softplus(X)))


@Mish.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    return MishGradient(g, X)


@function("dX", kind="pointwise", fused=True, T=FLOATS, amp="widest")
def MishGradient(g: T, X: T) -> T:
    """g times the slope of Mish at X."""
    if g.dtype in HALF_TYPES:  # exp(X)² is more than float16 holds
        wide = [OPS["Cast"](each, to=onnx_type(float32)) for each in (g, X)]
        made: TensorBase = OPS["Cast"](MishGradient.body(*wide), to=onnx_type(g.dtype))
        return made
    one, two = constant(1, g), constant(2, g)
    held = Min(X, constant(20, g))  # beyond, the slope is 1
    n = Exp(held)
    u = Mul(n, Add(n, two))
    below = Div(two, Add(u, two))  # 1 - t, where t = tanh(Softplus(X))
    t = Sub(one, below)
    bend = Mul(Mul(below, Add(one, t)), Div(n, Add(n, one)))
    return Mul(g, Add(t, Mul(held, bend)))


def _swish(xp: XP, X: Array, alpha: float) -> Array:
    y = xp.asarray(X * X.dtype.type(-alpha))
    xp.exp(y, out=y)
    y += 1
    return xp.divide(X, y, out=y)


@operator("Y", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Swish(xp: XP, X: T, *, alpha: float = 1.0) -> T:
    """X Sigmoid(alpha X). ONNX Swish."""
    return _swish(xp, X, alpha)


@Swish.gradient("X")
def _(g: TensorBase, X: TensorBase, alpha: float) -> TensorBase:
    return SwishGradient(g, X, alpha=alpha)


@function("dX", kind="pointwise", fused=True, T=FLOATS, amp="widest")
def SwishGradient(g: T, X: T, *, alpha: float = 1.0) -> T:
    """g times the slope of Swish at X."""
    inner = Mul(X, constant(alpha, g))
    s, one = Sigmoid(inner), constant(1, g)
    return Mul(Mul(g, s), Add(Mul(inner, Sub(one, s)), one))


@function("Y", kind="pointwise", fused=True, T=FLOATS, amp="widest")
def Silu(X: T) -> T:
    """X Sigmoid(X): Swish in operators that files of any opset have."""
    return Mul(X, Sigmoid(X))


@Silu.fast
@in_float32
def Silu_fast(xp: XP, X: Array) -> Array:
    return _swish(xp, X, 1.0)


@Silu.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    return SwishGradient(g, X)


@operator("Y", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest", batching="each")
@in_float32
def SwiGLU(xp: XP, A: T, B: T, *, alpha: float = 1.0) -> T:
    """Swish of the gate A times B, of one shape. ONNX SwiGLU."""
    if A.shape != B.shape:
        raise ShapeError("SwiGLU takes two inputs of one shape", expected=str(list(A.shape)), got=str(list(B.shape)))
    return _swish(xp, A, alpha) * B


@SwiGLU.expansion
def _(A: TensorBase, B: TensorBase, *, alpha: float = 1.0) -> TensorBase:
    return Mul(Mul(A, Sigmoid(Mul(A, constant(alpha, A)))), B)


@SwiGLU.gradient("A")
def _(g: TensorBase, A: TensorBase, B: TensorBase, alpha: float) -> TensorBase:
    return SwishGradient(Mul(g, B), A, alpha=alpha)


@SwiGLU.gradient("B")
def _(g: TensorBase, A: TensorBase, alpha: float) -> TensorBase:
    return Mul(g, Mul(A, Sigmoid(Mul(A, constant(alpha, g)))))
