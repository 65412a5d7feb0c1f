"""Circular and hyperbolic functions: Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh (Tanh is an activation)."""

from ox.core.constants import constant
from ox.core.operator import operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS
from ox.ops.elementwise.arithmetic import Add, Div, Mul, Neg, Sqrt, Sub

__all__ = ["Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan"]


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
def Sin(xp: XP, input: T) -> T:
    """Sine of radians. ONNX Sin."""
    return xp.sin(input)


@Sin.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Mul(g, Cos(input))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
def Cos(xp: XP, input: T) -> T:
    """Cosine of radians. ONNX Cos."""
    return xp.cos(input)


@Cos.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Neg(Mul(g, Sin(input)))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="float32")
@in_float32
def Tan(xp: XP, input: T) -> T:
    """Tangent of radians. ONNX Tan."""
    return xp.tan(input)


@Tan.gradient("input")
def _(g: TensorBase, output: TensorBase) -> TensorBase:
    return Mul(g, Add(Mul(output, output), constant(1, g)))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="float32")
@in_float32
def Asin(xp: XP, input: T) -> T:
    """Arc sine in radians; NaN outside -1 to 1. ONNX Asin."""
    return xp.arcsin(input)


@Asin.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Div(g, Sqrt(Sub(constant(1, g), Mul(input, input))))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="float32")
@in_float32
def Acos(xp: XP, input: T) -> T:
    """Arc cosine in radians; NaN outside -1 to 1. ONNX Acos."""
    return xp.arccos(input)


@Acos.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Neg(Div(g, Sqrt(Sub(constant(1, g), Mul(input, input)))))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Atan(xp: XP, input: T) -> T:
    """Arc tangent in radians. ONNX Atan."""
    return xp.arctan(input)


@Atan.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Div(g, Add(Mul(input, input), constant(1, g)))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="float32")
@in_float32
def Sinh(xp: XP, input: T) -> T:
    """Hyperbolic sine. ONNX Sinh."""
    return xp.sinh(input)


@Sinh.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Mul(g, Cosh(input))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="float32")
@in_float32
def Cosh(xp: XP, input: T) -> T:
    """Hyperbolic cosine. ONNX Cosh."""
    return xp.cosh(input)


@Cosh.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Mul(g, Sinh(input))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Asinh(xp: XP, input: T) -> T:
    """Inverse hyperbolic sine. ONNX Asinh."""
    return xp.arcsinh(input)


@Asinh.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Div(g, Sqrt(Add(Mul(input, input), constant(1, g))))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Acosh(xp: XP, input: T) -> T:
    """Inverse hyperbolic cosine; NaN below 1. ONNX Acosh."""
    return xp.arccosh(input)


@Acosh.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    one = constant(1, g)
    # in two factors: their product is exact near 1, where the difference of squares is not
    return Div(g, Mul(Sqrt(Sub(input, one)), Sqrt(Add(input, one))))


@operator("output", kind="pointwise", T=FLOATS, ignore_fp_warnings=True, amp="widest")
@in_float32
def Atanh(xp: XP, input: T) -> T:
    """Inverse hyperbolic tangent; NaN outside -1 to 1. ONNX Atanh."""
    return xp.arctanh(input)


@Atanh.gradient("input")
def _(g: TensorBase, input: TensorBase) -> TensorBase:
    return Div(g, Sub(constant(1, g), Mul(input, input)))
