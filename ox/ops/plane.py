"""Functions of two sides of a right angle, and of signs: Atan2 Hypot SignBit."""

from math import pi
from typing import TYPE_CHECKING

import numpy as np

from ox.dtypes import FLOATS
from ox.ops.arithmetic import Abs, Add, Div, Max, Min, Mul, Neg, Reciprocal, Sqrt, Sub
from ox.ops.broadcast import sum_to
from ox.ops.comparison import Equal, Less, Or, Where
from ox.ops.function import function
from ox.ops.numeric import constant, widened
from ox.ops.trigonometry import Atan
from ox.ops.types import XP, Array, Bool, T

if TYPE_CHECKING:
    from ox.tensor import Tensor


@function("Y", T=FLOATS)
def SignBit(X: T) -> Bool:
    """Whether the sign is minus, as it is of -0.0."""
    return _minus(X)


def _minus(x: "Tensor") -> "Tensor":
    zero = constant(0, x)
    return Or(Less(x, zero), Less(Reciprocal(x), zero))


@SignBit.fast
def _(xp: XP, X: Array) -> Array:
    return xp.signbit(X)


@function("Z", T=FLOATS)
def Atan2(A: T, B: T) -> T:
    """The angle of the point B (to the right), A (up), from -pi to pi."""
    up, right = Abs(A), Abs(B)
    same = Equal(up, right)  # both 0 or both infinite have no quotient
    level = Where(Equal(Add(up, right), constant(0, A)), constant(0, A), constant(1, A))
    angle = Atan(Where(same, level, Div(up, right)))
    angle = Where(_minus(B), Sub(constant(pi, A), angle), angle)
    return Where(_minus(A), Neg(angle), angle)


@Atan2.fast
@widened
def _(xp: XP, A: Array, B: Array) -> Array:
    return xp.arctan2(A, B)


@Atan2.gradient("A")
def _(g: "Tensor", A: "Tensor", B: "Tensor", A_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(Mul(g, _per_square(B, A, B)), A_shape)


@Atan2.gradient("B")
def _(g: "Tensor", A: "Tensor", B: "Tensor", B_shape: tuple[int, ...]) -> "Tensor":
    return Neg(sum_to(Mul(g, _per_square(A, A, B)), B_shape))


def _per_square(x: "Tensor", a: "Tensor", b: "Tensor") -> "Tensor":
    """x / (a² + b²), and 0 where both are 0: the angle of no direction does not turn."""
    square = Add(Mul(a, a), Mul(b, b))
    none = Equal(square, constant(0, x))
    return Div(Where(none, constant(0, x), x), Where(none, constant(1, x), square))


@function("C", T=FLOATS)
def Hypot(A: T, B: T) -> T:
    """sqrt(A² + B²), whose squares do not overflow."""
    a, b = Abs(A), Abs(B)
    large, small = Max(a, b), Min(a, b)
    one = constant(1, A)
    plain = Or(Equal(large, constant(0, A)), Equal(large, constant(float("inf"), A)))
    ratio = Where(plain, constant(0, A), Div(small, Where(plain, one, large)))
    return Mul(large, Sqrt(Add(Mul(ratio, ratio), one)))


@Hypot.fast
@widened
def _(xp: XP, A: Array, B: Array) -> Array:
    with np.errstate(all="ignore"):
        return xp.hypot(A, B)


@Hypot.gradient("A")
def _(g: "Tensor", A: "Tensor", C: "Tensor", A_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(Mul(g, Div(A, C)), A_shape)


@Hypot.gradient("B")
def _(g: "Tensor", B: "Tensor", C: "Tensor", B_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(Mul(g, Div(B, C)), B_shape)
