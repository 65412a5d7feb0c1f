"""`torch.special`: functions that integrals and series define, and names that other functions have here too."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core.constants import scalar
from ox.functions import (
    digamma,
    erf,
    erfc,
    erfinv,
    exp2,
    expm1,
    lgamma,
    log1p,
    log_softmax,
    logit,
    logsumexp,
    mvlgamma,
    polygamma,
    round,
    sigmoid,
    sinc,
    softmax,
    xlogy,
)
from ox.functions.bessel import i0, i0e, i1, i1e, spherical_bessel_j0
from ox.functions.operand_arguments import floating, unary_wide
from ox.functions.overloads import with_keywords
from ox.functions.transcendental import gammainc, gammaincc, xlog1py

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "sinc",
    "softmax",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
]

expit, gammaln, psi, multigammaln = sigmoid, lgamma, digamma, mvlgamma
modified_bessel_i0, modified_bessel_i1 = i0, i1
erfcx, ndtri = unary_wide(ops.Erfcx), unary_wide(ops.Ndtri)


def entr(input: Any) -> Tensor:
    """-x log(x), 0 at 0 and -infinity below. `torch.special.entr`."""
    x = floating(input)
    lowest, one, none = scalar(-float("inf"), x.array.dtype), scalar(1, x.array.dtype), x == 0
    safe = ops.Where(none, one, x)
    # at 0 as the root: 0, with an infinite slope
    inside = ops.Where(none, ops.Sqrt(ops.Where(none, x, one)), ops.Neg(ops.Mul(safe, ops.Log(safe))))
    return ops.Where(x < 0, lowest, inside)


def ndtr(input: Any) -> Tensor:
    """The normal distribution function. `torch.special.ndtr`."""
    x = floating(input)
    return erfc(x * -sqrt(0.5)) * 0.5


def log_ndtr(input: Any) -> Tensor:
    """The logarithm of the normal distribution function, also far to the left. `torch.special.log_ndtr`."""
    x = floating(input)
    one, left = scalar(1, x.array.dtype), x < -1
    # each formula sees only the values that it is for, lest a gradient be infinite times zero
    below, above = ops.Where(left, x, ops.Neg(one)), ops.Where(left, ops.Neg(one), x)
    far = ops.Log(erfcx(below * -sqrt(0.5)) * 0.5) - below * below * 0.5
    return ops.Where(left, far, log1p(erfc(above * sqrt(0.5)) * -0.5))


with_keywords(globals(), __all__)
