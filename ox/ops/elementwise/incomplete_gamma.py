"""The regularized incomplete gamma functions: Gammainc Gammaincc. Their sums end where they have converged, so
they have no form in operators."""

from typing import Any

import numpy as np

from ox.core.broadcast import sum_to
from ox.core.constants import constant
from ox.core.tensor import TensorBase
from ox.core.types import XP, T
from ox.errors import ArgumentError
from ox.ops.elementwise.arithmetic import Exp, Log, Mul, Neg, Sub
from ox.ops.elementwise.gamma import Lgamma
from ox.ops.linalg.solve import KINDS, factorization

__all__ = ["Gammainc", "Gammaincc"]

STEPS = 10_000


@factorization("Y", kind="pointwise", T=KINDS, amp="widest")
def Gammainc(xp: XP, A: T, X: T) -> T:
    """P(A, X) = 1/gamma(A) times the integral of t^(A-1) exp(-t) from 0 to X. No gradient reaches A."""
    return _shares(xp, A, X)[0]


@factorization("Y", kind="pointwise", T=KINDS, amp="widest")
def Gammaincc(xp: XP, A: T, X: T) -> T:
    """Q(A, X) = 1 - P(A, X), without the loss of the subtraction. No gradient reaches A."""
    return _shares(xp, A, X)[1]


@Gammainc.gradient("X")
def _(g: TensorBase, A: TensorBase, X: TensorBase, X_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(Mul(g, _density(A, X)), X_shape)


@Gammaincc.gradient("X")
def _(g: TensorBase, A: TensorBase, X: TensorBase, X_shape: tuple[int, ...]) -> TensorBase:
    return Neg(sum_to(Mul(g, _density(A, X)), X_shape))


@Gammainc.gradient("A")
@Gammaincc.gradient("A")
def _(g: TensorBase) -> TensorBase:
    raise ArgumentError("the incomplete gamma function has no gradient for its first argument")


def _density(A: TensorBase, X: TensorBase) -> TensorBase:
    return Exp(Sub(Sub(Mul(Sub(A, constant(1, A)), Log(X)), X), Lgamma(A)))


def _shares(xp: XP, A: Any, X: Any) -> tuple[Any, Any]:
    """P and Q: below A + 1 by the series of P, else by the continued fraction of Q (Lentz)."""
    from ox.core.operator import OPS, make_tensor

    dtype = A.dtype
    a, x = xp.broadcast_arrays(A.astype(np.float64), X.astype(np.float64))
    with np.errstate(all="ignore"):
        good = (a > 0) & (x > 0) & xp.isfinite(a) & xp.isfinite(x)
        sa, sx = xp.where(good, a, 1.0), xp.where(good, x, 1.0)
        gamma = OPS["ox.Lgamma"](make_tensor(xp.array(sa))).array
        weight = xp.exp(sa * xp.log(sx) - sx - gamma)
        low = sx < sa + 1
        p = weight * _series(xp.where(low, sa, 1.0), xp.where(low, sx, 0.5))
        q = weight * _fraction(xp, xp.where(low, 1.0, sa), xp.where(low, 3.0, sx))
        p, q = xp.where(low, p, 1 - q), xp.where(low, 1 - p, q)
        p = xp.where(good, p, xp.where((a == 0) & (x > 0) | (x == np.inf) & (a > 0) & (a < np.inf), 1.0, np.nan))
        p = xp.where((x == 0) & (a > 0) | (a == np.inf) & (x >= 0) & (x < np.inf), 0.0, p)
        q = xp.where(good, q, 1 - p)
    return p.astype(dtype), q.astype(dtype)


def _series(a: Any, x: Any) -> Any:
    term = total = 1 / a
    for n in range(1, STEPS):
        term = term * x / (a + n)
        total = total + term
        if not bool((term > total * 1e-17).any()):
            break
    return total


def _fraction(xp: XP, a: Any, x: Any) -> Any:
    b = x + 1 - a
    c, d = xp.full_like(x, 1e300), 1 / b
    total = d
    for n in range(1, STEPS):
        factor = -n * (n - a)
        b = b + 2
        d = 1 / (factor * d + b)
        c = b + factor / c
        step = c * d
        total = total * step
        if not bool((abs(step - 1) > 1e-16).any()):
            break
    return total
