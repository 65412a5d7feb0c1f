"""Elementwise arithmetic: Add Sub Mul Div Neg Abs Sqrt Reciprocal Exp Log Pow Min Max Clip."""

from typing import TYPE_CHECKING

from ox.dtypes import FLOATS, INTEGERS, NUMERIC, SIGNED, float32, float64, int32, int64
from ox.ops.broadcast import sum_to
from ox.ops.operator import OPS, operator
from ox.ops.types import XP, Array, T, T1

if TYPE_CHECKING:
    from ox.tensor import Tensor


@operator("C", T=NUMERIC)
def Add(xp: XP, A: T, B: T) -> T:
    """Sum, with NumPy broadcasting. ONNX Add."""
    return xp.add(A, B)


@Add.gradient("A")
def _(g: "Tensor", A_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(g, A_shape)


@Add.gradient("B")
def _(g: "Tensor", B_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(g, B_shape)


@operator("C", T=NUMERIC)
def Sub(xp: XP, A: T, B: T) -> T:
    """Difference, with NumPy broadcasting. ONNX Sub."""
    return xp.subtract(A, B)


@Sub.gradient("A")
def _(g: "Tensor", A_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(g, A_shape)


@Sub.gradient("B")
def _(g: "Tensor", B_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(Neg(g), B_shape)


@operator("C", T=NUMERIC)
def Mul(xp: XP, A: T, B: T) -> T:
    """Product, with NumPy broadcasting. ONNX Mul."""
    return xp.multiply(A, B)


@Mul.gradient("A")
def _(g: "Tensor", B: "Tensor", A_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(Mul(g, B), A_shape)


@Mul.gradient("B")
def _(g: "Tensor", A: "Tensor", B_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(Mul(g, A), B_shape)


@operator("Y", T=(*FLOATS, *SIGNED))
def Neg(xp: XP, X: T) -> T:
    """Negation. ONNX Neg."""
    return xp.negative(X)


@Neg.gradient("X")
def _(g: "Tensor") -> "Tensor":
    return Neg(g)
