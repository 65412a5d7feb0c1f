"""Modified Bessel functions of the first kind, and the spherical one of order 0."""

from __future__ import annotations

from math import factorial, pi
from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core.constants import scalar
from ox.functions.operand_arguments import unary_wide

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["i0"]

BORDER = 18.0  # from which the asymptotic series is exact to 1e-16
TERMS = 46  # of the power series up to there
FAR_TERMS = 24


def _polynomial(terms: list[float], x: Tensor) -> Tensor:
    """By Horner's rule, from the constant term on."""
    dtype = x.array.dtype
    total = scalar(terms[-1], dtype)
    for term in terms[-2::-1]:
        total = ops.Add(ops.Mul(total, x), scalar(term, dtype))
    return total


def _near(order: int) -> list[float]:
    """sum t^k B^2k / (k! (k + order)!): the power series at x = 2 B sqrt(t), without (x/2)^order."""
    step = (BORDER / 2) ** 2
    return [step**k / factorial(k) / factorial(k + order) for k in range(TERMS)]


def _far(order: int) -> list[float]:
    """The asymptotic series of sqrt(2 pi x) exp(-x) I(x) in BORDER/x."""
    terms, term = [], 1.0
    for k in range(1, FAR_TERMS + 1):
        terms.append(term)
        term *= -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * BORDER)
    return terms


def _bessel(order: int, scaled: bool, name: str, doc: str) -> Any:
    near_terms, far_terms = _near(order), _far(order)

    def kernel(x: Tensor) -> Tensor:
        dtype = x.array.dtype
        size, border = ops.Abs(x), scalar(BORDER, dtype)
        low = ops.LessOrEqual(size, border)
        # each series sees only what it is for, lest a gradient be infinite times zero
        inner = ops.Where(low, x, scalar(0, dtype))
        outer = ops.Where(low, border, size)
        half = ops.Mul(inner, scalar(1 / BORDER, dtype))
        near = _polynomial(near_terms, ops.Mul(half, half))
        far = _polynomial(far_terms, ops.Div(border, outer))
        far = ops.Div(far, ops.Sqrt(ops.Mul(outer, scalar(2 * pi, dtype))))
        if order:
            near = ops.Mul(near, ops.Mul(inner, scalar(0.5, dtype)))
            far = ops.Mul(far, ops.Sign(x))
        if scaled:
            near = ops.Mul(near, ops.Exp(ops.Neg(ops.Abs(inner))))
        else:
            half_power = ops.Exp(ops.Mul(outer, scalar(0.5, dtype)))  # in two steps, to overflow as late as the result
            far = ops.Mul(ops.Mul(far, half_power), half_power)
        found = ops.Where(low, near, far)
        return ops.Where(ops.Equal(x, x), found, x)

    kernel.__doc__ = doc
    return unary_wide(kernel, name)


i0 = _bessel(0, False, "i0", "The modified Bessel function of order 0. `torch.special.i0`.")
i0e = _bessel(0, True, "i0e", "exp(-|x|) i0(x). `torch.special.i0e`.")
i1 = _bessel(1, False, "i1", "The modified Bessel function of order 1. `torch.special.i1`.")
i1e = _bessel(1, True, "i1e", "exp(-|x|) i1(x). `torch.special.i1e`.")


def _spherical(x: Tensor) -> Tensor:
    """sin(x) / x, and 1 at 0. `torch.special.spherical_bessel_j0`."""
    none, one = ops.Equal(x, scalar(0, x.array.dtype)), scalar(1, x.array.dtype)
    safe = ops.Where(none, one, x)
    return ops.Where(none, one, ops.Div(ops.Sin(safe), safe))


spherical_bessel_j0 = unary_wide(_spherical, "spherical_bessel_j0")
