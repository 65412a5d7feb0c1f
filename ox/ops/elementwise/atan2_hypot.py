"""Functions of two sides of a right angle, and of signs: Atan2 Hypot SignBit."""

from math import pi

import numpy as np

from ox.core.broadcast import sum_to
from ox.core.constants import constant
from ox.core.function import function
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, Bool, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS
from ox.ops.elementwise.arithmetic import Abs, Add, Div, Max, Min, Mul, Neg, Reciprocal, Sqrt, Sub
from ox.ops.elementwise.comparison import Equal, Less, Or, Where
from ox.ops.elementwise.trigonometry import Atan

__all__ = ["Atan2", "Hypot", "SignBit"]


@function("Y", kind="pointwise", T=FLOATS, amp="widest")
def SignBit(X: T) -> Bool:
    """Whether the sign is minus, as it is of -0.0."""
    return _minus(X)


def _minus(x: TensorType) -> TensorType:
    zero = constant(0, x)
    return Or(Less(x, zero), Less(Reciprocal(x), zero))


@SignBit.fast
def _(xp: XP, X: Array) -> Array:
    return xp.signbit(X)


@function("Z", kind="pointwise", T=FLOATS, amp="widest")
def Atan2(A: T, B: T) -> T:
    """The angle of the point B (to the right), A (up), from -pi to pi."""
    up, right = Abs(A), Abs(B)
    same = Equal(up, right)  # both 0 or both infinite have no quotient
    level = Where(Equal(Add(up, right), constant(0, A)), constant(0, A), constant(1, A))
    angle = Atan(Where(same, level, Div(up, right)))
    angle = Where(_minus(B), Sub(constant(pi, A), angle), angle)
    return Where(_minus(A), Neg(angle), angle)


@Atan2.fast
@in_float32
def Atan2_fast(xp: XP, A: Array, B: Array) -> Array:
    return xp.arctan2(A, B)


@Atan2.gradient("A")
def _(g: TensorBase, A: TensorBase, B: TensorBase, A_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(Mul(g, _per_square(B, A, B)), A_shape)


@Atan2.gradient("B")
def _(g: TensorBase, A: TensorBase, B: TensorBase, B_shape: tuple[int, ...]) -> TensorBase:
    return Neg(sum_to(Mul(g, _per_square(A, A, B)), B_shape))


def _per_square(x: TensorBase, a: TensorBase, b: TensorBase) -> TensorBase:
    """x / (a² + b²), and 0 where both are 0: the angle of no direction does not turn."""
    square = Add(Mul(a, a), Mul(b, b))
    none = Equal(square, constant(0, x))
    return Div(Where(none, constant(0, x), x), Where(none, constant(1, x), square))


@function("C", kind="pointwise", T=FLOATS, amp="widest")
def Hypot(A: T, B: T) -> T:
    """sqrt(A² + B²), whose squares do not overflow."""
    a, b = Abs(A), Abs(B)
    large, small = Max(a, b), Min(a, b)
    one = constant(1, A)
    plain = Or(Equal(large, constant(0, A)), Equal(large, constant(float("inf"), A)))
    ratio = Where(plain, constant(0, A), Div(small, Where(plain, one, large)))
    return Mul(large, Sqrt(Add(Mul(ratio, ratio), one)))


@Hypot.fast
@in_float32
def Hypot_fast(xp: XP, A: Array, B: Array) -> Array:
    with np.errstate(all="ignore"):
        return xp.hypot(A, B)


@Hypot.gradient("A")
def _(g: TensorBase, A: TensorBase, C: TensorBase, A_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(Mul(g, Div(A, C)), A_shape)


@Hypot.gradient("B")
def _(g: TensorBase, B: TensorBase, C: TensorBase, B_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(Mul(g, Div(B, C)), B_shape)
