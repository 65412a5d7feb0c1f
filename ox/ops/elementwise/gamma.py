"""The logarithm of the gamma function and its derivatives: Lgamma Digamma Polygamma.

All by the asymptotic series, whose argument is first raised beyond 8 by the recurrence gamma(x + 1) = x gamma(x);
below 1/2 by reflection.
"""

from math import factorial, inf, log, nan, pi

from ox.core.constants import constant
from ox.core.function import function
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T
from ox.errors import ArgumentError
from ox.ops.elementwise.arithmetic import Abs, Add, Div, Log, Mul, Neg, Pow, Reciprocal, Sub
from ox.ops.elementwise.comparison import And, Equal, Less, Where
from ox.ops.elementwise.erf_inverse import WIDE, polynomial
from ox.ops.elementwise.rounding import Floor
from ox.ops.elementwise.trigonometry import Cos, Sin

__all__ = ["Digamma", "Lgamma", "Polygamma"]

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)  # the second, the fourth, ...
RAISED = 8


def _raised(x: TensorBase) -> tuple[TensorBase, TensorBase, TensorBase]:
    """Whether x is small, x where it is (else 1), and an argument large enough for the series."""
    small = Less(x, constant(RAISED, x))
    return small, Where(small, x, constant(1, x)), Where(small, Add(x, constant(RAISED, x)), x)


def _pi_fraction(x: TensorType) -> TensorType:
    """pi times the part of x after the point."""
    return Mul(Sub(x, Floor(x)), constant(pi, x))


@function("Y", kind="pointwise", T=WIDE, amp="widest")
def Lgamma(X: T) -> T:
    """log |gamma(X)|."""
    reflected = Less(X, constant(0.5, X))
    z = Where(reflected, Sub(constant(1, X), X), X)
    small, s, w = _raised(z)
    product = s
    for k in range(1, RAISED):
        product = Mul(product, Add(s, constant(k, X)))
    u = Reciprocal(w)
    terms = [b / (2 * j * (2 * j - 1)) for j, b in enumerate(BERNOULLI, start=1)]
    series = Mul(polynomial(terms[::-1], Mul(u, u)), u)
    one, logarithm = constant(1, X), Log(w)
    y = Sub(Mul(w, Sub(logarithm, one)), Mul(logarithm, constant(0.5, X)))
    y = Add(y, Add(series, constant(0.5 * log(2 * pi), X)))
    y = Sub(y, Where(small, Log(product), constant(0, X)))
    other = Sub(Sub(constant(log(pi), X), Log(Abs(Sin(_pi_fraction(X))))), y)
    y = Where(reflected, other, y)
    return Where(Equal(Abs(X), constant(inf, X)), constant(inf, X), y)


@Lgamma.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    slope: TensorBase = Digamma(X)
    return Mul(g, slope)


@function("Y", kind="pointwise", T=WIDE, amp="widest")
def Digamma(X: T) -> T:
    """The derivative of log gamma(X); infinite at 0, NaN at negative whole numbers."""
    zero, one = constant(0, X), constant(1, X)
    reflected = Less(X, constant(0.5, X))
    z = Where(reflected, Sub(one, X), X)
    small, s, w = _raised(z)
    total = Reciprocal(s)
    for k in range(1, RAISED):
        total = Add(total, Reciprocal(Add(s, constant(k, X))))
    u = Reciprocal(w)
    square = Mul(u, u)
    terms = [b / (2 * j) for j, b in enumerate(BERNOULLI, start=1)]
    series = Mul(polynomial(terms[::-1], square), square)
    y = Sub(Sub(Log(w), Mul(u, constant(0.5, X))), Add(series, Where(small, total, zero)))
    angle = _pi_fraction(X)
    turned = Sub(y, Mul(constant(pi, X), Div(Cos(angle), Sin(angle))))
    y = Where(reflected, turned, y)
    y = Where(And(Less(X, zero), Equal(angle, zero)), constant(nan, X), y)
    return Where(Equal(X, zero), Neg(Reciprocal(X)), y)


@Digamma.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    slope: TensorBase = Polygamma(X, n=1)
    return Mul(g, slope)


@function("Y", kind="pointwise", T=WIDE, amp="widest")
def Polygamma(X: T, *, n: int) -> T:
    """The n-th derivative (n from 1) of the digamma function; below 1/2 by reflection, with the n-th derivative of the
    cotangent."""
    if n < 1:
        raise ArgumentError("polygamma's order counts from 1", got=str(n), hint="digamma for 0")
    reflected = Less(X, constant(0.5, X))
    z = Where(reflected, Sub(constant(1, X), X), X)
    s = n + 1
    y = Pow(z, constant(-s, X))
    for k in range(1, RAISED + 2):
        y = Add(y, Pow(Add(z, constant(k, X)), constant(-s, X)))
    w = Add(z, constant(RAISED + 2, X))
    u = Reciprocal(w)
    rising, terms = float(s), []
    for j, b in enumerate(BERNOULLI, start=1):
        terms.append(b / factorial(2 * j) * rising)
        rising *= (s + 2 * j - 1) * (s + 2 * j)
    square = Mul(u, u)
    tail = Add(Add(Mul(u, constant(0.5, X)), constant(1 / n, X)), Mul(polynomial(terms[::-1], square), square))
    y = Add(y, Mul(Pow(w, constant(-n, X)), tail))
    y = Mul(y, constant(factorial(n), X))  # of 1 - X where reflected, with the sign of odd orders
    angle = _pi_fraction(X)
    slope = polynomial(_cotangent_slope(n)[::-1], Div(Cos(angle), Sin(angle)))
    turned = Sub(Neg(y), Mul(slope, constant(pi ** (n + 1), X)))
    return Where(reflected, turned, y if n % 2 else Neg(y))


def _cotangent_slope(n: int) -> list[float]:
    """The n-th derivative of cot x as a polynomial in cot x, from the constant on: c' = -(1 + c²)."""
    terms = [0.0, 1.0]
    for _ in range(n):
        slope = [i * t for i, t in enumerate(terms)][1:]
        terms = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return terms


@Polygamma.gradient("X")
def _(g: TensorBase, X: TensorBase, n: int) -> TensorBase:
    slope: TensorBase = Polygamma(X, n=n + 1)
    return Mul(g, slope)
