"""Comparison, logic, choice, bits: Equal Greater GreaterOrEqual Less LessOrEqual Not And Or Where BitwiseAnd BitwiseXor
BitShift."""

from typing import TYPE_CHECKING

from ox.dtypes import ALL, INTEGERS, NUMERIC, bool_
from ox.ops.broadcast import sum_to
from ox.ops.numeric import constant
from ox.ops.operator import operator
from ox.ops.types import XP, Bool, T

if TYPE_CHECKING:
    from ox.tensor import Tensor


@operator("C", T=ALL)
def Equal(xp: XP, A: T, B: T) -> Bool:
    """Whether equal, with NumPy broadcasting. ONNX Equal."""
    return xp.equal(A, B)


@operator("C", T=NUMERIC)
def Greater(xp: XP, A: T, B: T) -> Bool:
    """Whether A > B, with NumPy broadcasting. ONNX Greater."""
    return xp.greater(A, B)


@operator("C", T=NUMERIC)
def GreaterOrEqual(xp: XP, A: T, B: T) -> Bool:
    """Whether A >= B, with NumPy broadcasting. ONNX GreaterOrEqual."""
    return xp.greater_equal(A, B)


@operator("C", T=NUMERIC)
def Less(xp: XP, A: T, B: T) -> Bool:
    """Whether A < B, with NumPy broadcasting. ONNX Less."""
    return xp.less(A, B)


@operator("C", T=NUMERIC)
def LessOrEqual(xp: XP, A: T, B: T) -> Bool:
    """Whether A <= B, with NumPy broadcasting. ONNX LessOrEqual."""
    return xp.less_equal(A, B)


@operator("Y", T=(bool_,))
def Not(xp: XP, X: T) -> T:
    """Negation. ONNX Not."""
    return xp.logical_not(X)


@operator("C", T=(bool_,))
def And(xp: XP, A: T, B: T) -> Bool:
    """Whether both, with NumPy broadcasting. ONNX And."""
    return xp.logical_and(A, B)


@operator("C", T=(bool_,))
def Or(xp: XP, A: T, B: T) -> Bool:
    """Whether either, with NumPy broadcasting. ONNX Or."""
    return xp.logical_or(A, B)


@operator("output", T=ALL)
def Where(xp: XP, condition: Bool, X: T, Y: T) -> T:
    """X where the condition holds, else Y, with NumPy broadcasting. ONNX Where."""
    return xp.where(condition, X, Y)


@Where.gradient("X")
def _(g: "Tensor", condition: "Tensor", X_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(Where(condition, g, constant(0, g)), X_shape)


@Where.gradient("Y")
def _(g: "Tensor", condition: "Tensor", Y_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(Where(condition, constant(0, g), g), Y_shape)


@operator("C", T=INTEGERS)
def BitwiseAnd(xp: XP, A: T, B: T) -> T:
    """Bits set in both, with NumPy broadcasting. ONNX BitwiseAnd."""
    return xp.bitwise_and(A, B)


@operator("C", T=INTEGERS)
def BitwiseXor(xp: XP, A: T, B: T) -> T:
    """Bits set in one of the two, with NumPy broadcasting. ONNX BitwiseXor."""
    return xp.bitwise_xor(A, B)


@operator("Z", T=INTEGERS)
def BitShift(xp: XP, X: T, Y: T, *, direction: str) -> T:
    """X shifted by Y bits to "LEFT" or "RIGHT", with NumPy broadcasting. ONNX BitShift."""
    return xp.left_shift(X, Y) if direction == "LEFT" else xp.right_shift(X, Y)
