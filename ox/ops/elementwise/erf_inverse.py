"""The complement of the error function, and inverses: Erfc Erfcx Erfinv Ndtri."""

from collections.abc import Sequence
from math import pi, sqrt

from ox.core.constants import constant
from ox.core.function import function
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T
from ox.dtypes import float32, float64
from ox.ops.elementwise.activation import Erf
from ox.ops.elementwise.arithmetic import Abs, Add, Div, Exp, Log, Max, Min, Mul, Neg, Reciprocal, Sign, Sqrt, Sub
from ox.ops.elementwise.comparison import Less, LessOrEqual, Where
from ox.ops.elementwise.erf import MIDDLE, MIDDLE_BELOW, TAIL, TAIL_BELOW
from ox.ops.elementwise.rounding import Floor

__all__ = ["Erfc", "Erfcx", "Erfinv", "Ndtri"]

WIDE = (float32, float64)


def polynomial(coefficients: Sequence[float], x: TensorType) -> TensorType:
    """By Horner's rule, the highest power first."""
    y = constant(coefficients[0], x)
    for c in coefficients[1:]:
        y = Add(Mul(y, x), constant(c, x))
    return y


def _scaled(size: TensorType) -> TensorType:
    """exp(size²) erfc(size) from 0.46875 on: Cody's quotients, as in `ox.ops.elementwise.erf`."""
    m = Max(Min(size, constant(4, size)), constant(0.46875, size))
    middle = Div(polynomial(MIDDLE, m), polynomial(MIDDLE_BELOW, m))
    far = Max(size, constant(4, size))
    z = Reciprocal(Mul(far, far))
    quotient = Div(Mul(z, polynomial(TAIL, z)), polynomial(TAIL_BELOW, z))
    tail = Div(Sub(constant(1 / sqrt(pi), size), quotient), far)
    return Where(LessOrEqual(size, constant(4, size)), middle, tail)


def _gauss(s: TensorType, sign: float) -> TensorType:
    """exp(sign s²) with the square split in two, so that its rounding does not grow."""
    head = Mul(Floor(Mul(s, constant(16, s))), constant(1 / 16, s))
    rest = Mul(Sub(s, head), Add(s, head))
    return Mul(Exp(Mul(Mul(head, head), constant(sign, s))), Exp(Mul(rest, constant(sign, s))))


@function("Y", kind="pointwise", T=WIDE, amp="widest")
def Erfc(X: T) -> T:
    """1 - erf(X) without the loss of the subtraction."""
    size = Abs(X)
    s = Min(size, constant(27, X))
    y = Mul(_gauss(s, -1), _scaled(s))
    y = Where(Less(X, constant(0, X)), Sub(constant(2, X), y), y)
    return Where(LessOrEqual(size, constant(0.46875, X)), Sub(constant(1, X), Erf(X)), y)


@Erfc.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    return Mul(Mul(g, constant(-2 / sqrt(pi), g)), Exp(Neg(Mul(X, X))))


@function("Y", kind="pointwise", T=WIDE, amp="widest")
def Erfcx(X: T) -> T:
    """exp(X²) erfc(X), which does not vanish."""
    size = Abs(X)
    s = Min(size, constant(27, X))
    grown = _gauss(s, 1)
    y = _scaled(size)
    y = Where(Less(X, constant(0, X)), Sub(Add(grown, grown), y), y)
    return Where(LessOrEqual(size, constant(0.46875, X)), Mul(grown, Sub(constant(1, X), Erf(X))), y)


@Erfcx.gradient("X")
def _(g: TensorBase, X: TensorBase, Y: TensorBase) -> TensorBase:
    double = Mul(X, Y)
    return Mul(g, Sub(Add(double, double), constant(2 / sqrt(pi), g)))


# M. J. Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Applied Statistics 37 (1988)
_CENTRE = (
    2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
    1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0,
)  # fmt: skip
_CENTRE_BELOW = (
    5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
    5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0,
)  # fmt: skip
_SIDE = (
    7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
    3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0,
)  # fmt: skip
_SIDE_BELOW = (
    1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
    6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0,
)  # fmt: skip
_END = (
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
    2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0,
)  # fmt: skip
_END_BELOW = (
    2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
    1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0,
)  # fmt: skip


def _points(q: TensorType, tail: TensorBase) -> TensorType:
    """Where the normal distribution function is 1/2 + q; `tail` is what is left of the 1/2 beyond |q|."""
    size = Abs(q)
    inner = Min(size, constant(0.425, q))
    r = Sub(constant(0.180625, q), Mul(inner, inner))
    centre = Mul(inner, Div(polynomial(_CENTRE, r), polynomial(_CENTRE_BELOW, r)))
    root = Sqrt(Neg(Log(tail)))
    side = Sub(Min(root, constant(5, q)), constant(1.6, q))
    side = Div(polynomial(_SIDE, side), polynomial(_SIDE_BELOW, side))
    beyond = Sub(Max(Min(root, constant(30, q)), constant(5, q)), constant(5, q))
    end = Div(polynomial(_END, beyond), polynomial(_END_BELOW, beyond))
    y = Where(LessOrEqual(root, constant(5, q)), side, end)
    y = Where(Less(root, constant(float("inf"), q)), y, root)  # infinite at the ends, NaN beyond
    return Mul(Sign(q), Where(LessOrEqual(size, constant(0.425, q)), centre, y))


@function("Y", kind="pointwise", T=WIDE, amp="widest")
def Erfinv(X: T) -> T:
    """The value whose error function is X: the normal distribution's percentage points, over sqrt(2)."""
    q = Mul(X, constant(0.5, X))
    return Mul(_points(q, Sub(constant(0.5, X), Abs(q))), constant(sqrt(0.5), X))


@Erfinv.gradient("X")
def _(g: TensorBase, Y: TensorBase) -> TensorBase:
    return Mul(Mul(g, constant(sqrt(pi) / 2, g)), Exp(Mul(Y, Y)))


@function("Y", kind="pointwise", T=WIDE, amp="widest")
def Ndtri(X: T) -> T:
    """The value whose normal distribution function is X, exact for the smallest X too."""
    return _points(Sub(X, constant(0.5, X)), Min(X, Sub(constant(1, X), X)))


@Ndtri.gradient("X")
def _(g: TensorBase, Y: TensorBase) -> TensorBase:
    return Mul(Mul(g, constant(sqrt(2 * pi), g)), Exp(Mul(Mul(Y, Y), constant(0.5, g))))
