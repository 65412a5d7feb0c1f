"""Comparison, logic, choice, bits: Equal Greater GreaterOrEqual Less LessOrEqual IsNaN IsInf Not And Or Xor Where
BitwiseNot BitwiseAnd BitwiseOr BitwiseXor BitShift."""

import numpy as np

from ox.core.broadcast import sum_to
from ox.core.constants import constant, number
from ox.core.operator import operator
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T1, XP, Array, Bool, T
from ox.dtypes import ALL, FLOATS, HALF_TYPES, INTEGERS, NUMERIC, bool_, float32

__all__ = [
    "And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Equal", "Greater", "GreaterOrEqual",
    "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Where", "Xor",
]  # fmt: skip


def _fast(A: Array, B: Array) -> tuple[Array, Array]:
    """Half-width floats as float32, which is exact, and compared many times faster."""
    return (A.astype(float32), B.astype(float32)) if A.dtype in HALF_TYPES else (A, B)


@operator("C", kind="pointwise", commutative=True, T=ALL, amp="widest")
def Equal(xp: XP, A: T, B: T) -> Bool:
    """Whether equal, with NumPy broadcasting. ONNX Equal."""
    return xp.equal(*_fast(A, B))


@operator("C", kind="pointwise", T=NUMERIC, amp="widest")
def Greater(xp: XP, A: T, B: T) -> Bool:
    """Whether A > B, with NumPy broadcasting. ONNX Greater."""
    return xp.greater(*_fast(A, B))


@operator("C", kind="pointwise", T=NUMERIC, amp="widest")
def GreaterOrEqual(xp: XP, A: T, B: T) -> Bool:
    """Whether A >= B, with NumPy broadcasting. ONNX GreaterOrEqual."""
    return xp.greater_equal(*_fast(A, B))


@operator("C", kind="pointwise", T=NUMERIC, amp="widest")
def Less(xp: XP, A: T, B: T) -> Bool:
    """Whether A < B, with NumPy broadcasting. ONNX Less."""
    return xp.less(*_fast(A, B))


@operator("C", kind="pointwise", T=NUMERIC, amp="widest")
def LessOrEqual(xp: XP, A: T, B: T) -> Bool:
    """Whether A <= B, with NumPy broadcasting. ONNX LessOrEqual."""
    return xp.less_equal(*_fast(A, B))


@operator("Y", kind="pointwise", T1=FLOATS, amp="widest")
def IsNaN(xp: XP, X: T1) -> Bool:
    """Whether not a number. ONNX IsNaN."""
    return xp.isnan(X)


@operator("Y", kind="pointwise", T1=FLOATS, amp="widest")
def IsInf(xp: XP, X: T1, *, detect_negative: int = 1, detect_positive: int = 1) -> Bool:
    """Whether infinite, of the signs that are looked for. ONNX IsInf."""
    found = xp.isinf(X)
    if not detect_negative:
        found &= X > 0
    if not detect_positive:
        found &= X < 0
    return found


@operator("Y", kind="pointwise", T=(bool_,))
def Not(xp: XP, X: T) -> T:
    """Negation. ONNX Not."""
    return xp.logical_not(X)


@operator("C", kind="pointwise", commutative=True, T=(bool_,))
def And(xp: XP, A: T, B: T) -> Bool:
    """Whether both, with NumPy broadcasting. ONNX And."""
    return xp.logical_and(A, B)


@operator("C", kind="pointwise", commutative=True, T=(bool_,))
def Or(xp: XP, A: T, B: T) -> Bool:
    """Whether either, with NumPy broadcasting. ONNX Or."""
    return xp.logical_or(A, B)


@operator("C", kind="pointwise", commutative=True, T=(bool_,))
def Xor(xp: XP, A: T, B: T) -> Bool:
    """Whether just one of the two, with NumPy broadcasting. ONNX Xor."""
    return xp.logical_xor(A, B)


@operator("output", kind="pointwise", T=ALL, amp="widest")
def Where(xp: XP, condition: Bool, X: T, Y: T) -> T:
    """X where the condition holds, else Y, with NumPy broadcasting. ONNX Where."""
    return xp.where(condition, X, Y)


@Where.gradient("X")
def _(g: TensorBase, condition: TensorBase, X_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(Where(condition, g, constant(0, g)), X_shape)


@Where.gradient("Y")
def _(g: TensorBase, condition: TensorBase, Y_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(Where(condition, constant(0, g), g), Y_shape)


def nothing(g: TensorType) -> TensorType:
    """The gradient of step functions: 0 in the shape of `g`, also where `g` is NaN."""
    return Where(number(True, bool_), constant(0, g), g)


@operator("Y", kind="pointwise", T=INTEGERS)
def BitwiseNot(xp: XP, X: T) -> T:
    """Every bit turned. ONNX BitwiseNot."""
    return xp.bitwise_not(X)


@operator("C", kind="pointwise", commutative=True, T=INTEGERS)
def BitwiseOr(xp: XP, A: T, B: T) -> T:
    """Bits set in one or both, with NumPy broadcasting. ONNX BitwiseOr."""
    return xp.bitwise_or(A, B)


@operator("C", kind="pointwise", commutative=True, T=INTEGERS)
def BitwiseAnd(xp: XP, A: T, B: T) -> T:
    """Bits set in both, with NumPy broadcasting. ONNX BitwiseAnd."""
    return xp.bitwise_and(A, B)


@operator("C", kind="pointwise", commutative=True, T=INTEGERS)
def BitwiseXor(xp: XP, A: T, B: T) -> T:
    """Bits set in one of the two, with NumPy broadcasting. ONNX BitwiseXor."""
    return xp.bitwise_xor(A, B)


@operator("Z", kind="pointwise", T=INTEGERS)
def BitShift(xp: XP, X: T, Y: T, *, direction: str) -> T:
    """X shifted by Y bits to "LEFT" or "RIGHT", with NumPy broadcasting. ONNX BitShift."""
    shift = xp.left_shift if direction == "LEFT" else xp.right_shift
    if xp is np:
        return shift(X, Y)
    # as NumPy: beyond the width no bit stays but the sign, where C says nothing
    whole = (8 * X.dtype.itemsize > Y) & (Y >= 0)
    over = X >> (8 * X.dtype.itemsize - 1) if direction == "RIGHT" else xp.zeros_like(X)
    return xp.where(whole, shift(X, xp.where(whole, Y, 0).astype(Y.dtype)), over).astype(X.dtype, copy=False)
