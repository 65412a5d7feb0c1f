"""Exponentials, logarithms, angles, and the functions that integrals define."""

from __future__ import annotations

from math import log as log_of
from math import pi
from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core.constants import scalar
from ox.core.promotion import cast, promote_operands, upcast_half
from ox.core.tensor import is_tensor
from ox.dtypes import float64
from ox.errors import ArgumentError
from ox.functions.comparison import eq, isinf, isnan, logical_or
from ox.functions.operand_arguments import floating, in_single, only_floats, unary_float, unary_wide
from ox.functions.pointwise import pow, where

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "acos", "acosh", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin",
    "asinh", "atan", "atan2", "atanh", "cos", "cosh", "deg2rad", "digamma", "erf", "erfc", "erfinv", "exp", "exp2",
    "expm1", "float_power", "hypot", "igamma", "igammac", "lgamma", "log", "log1p", "log2", "log10", "logaddexp",
    "logaddexp2", "logit", "mvlgamma", "polygamma", "rad2deg", "rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt",
    "tan", "tanh", "xlogy",
]  # fmt: skip


sin, cos, tan, sinh, cosh, tanh = map(unary_float, (ops.Sin, ops.Cos, ops.Tan, ops.Sinh, ops.Cosh, ops.Tanh))
asin, acos, atan = map(unary_float, (ops.Asin, ops.Acos, ops.Atan))
asinh, acosh, atanh = map(unary_float, (ops.Asinh, ops.Acosh, ops.Atanh))
arcsin, arccos, arctan, arcsinh, arccosh, arctanh = asin, acos, atan, asinh, acosh, atanh
exp, log, sqrt, erf, sigmoid = map(unary_float, (ops.Exp, ops.Log, ops.Sqrt, ops.Erf, ops.Sigmoid))
expm1, log1p = map(unary_float, (ops.Expm1, ops.Log1p))
erfc, erfinv, lgamma, digamma = map(unary_wide, (ops.Erfc, ops.Erfinv, ops.Lgamma, ops.Digamma))


def _promote_floats(name: str, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    a, b = promote_operands(a, b)
    only_floats(name, a)
    return a, b


def _floats(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    a, b = promote_operands(a, b)
    return floating(a), floating(b)


def rsqrt(input: Any) -> Tensor:
    """1 / sqrt(input). `torch.rsqrt`."""
    return ops.Reciprocal(ops.Sqrt(floating(input)))


def exp2(input: Any) -> Tensor:
    """2 to the power of the input. `torch.exp2`."""
    x = floating(input)
    return ops.Pow(scalar(2, x.array.dtype), x)


def log2(input: Any) -> Tensor:
    """Logarithm to the base 2. `torch.log2`."""
    return _log_to(2, input)


def log10(input: Any) -> Tensor:
    """Logarithm to the base 10. `torch.log10`."""
    return _log_to(10, input)


def _log_to(base: int, input: Any) -> Tensor:
    x = ops.Log(floating(input))
    return ops.Div(x, scalar(log_of(base), x.array.dtype))


def deg2rad(input: Any) -> Tensor:
    """Degrees as radians. `torch.deg2rad`."""
    x = floating(input)
    return ops.Mul(x, scalar(pi / 180, x.array.dtype))


def rad2deg(input: Any) -> Tensor:
    """Radians as degrees. `torch.rad2deg`."""
    x = floating(input)
    return ops.Mul(x, scalar(180 / pi, x.array.dtype))


def atan2(input: Any, other: Any) -> Tensor:
    """The angle of the point (other, input), from -pi to pi. `torch.atan2`."""
    return ops.Atan2(*_floats(input, other))


arctan2 = atan2


def hypot(input: Any, other: Any) -> Tensor:
    """sqrt(input² + other²), whose squares do not overflow. `torch.hypot`. Raises DTypeError for whole numbers."""
    return ops.Hypot(*_promote_floats("hypot", input, other))


def logaddexp(input: Any, other: Any) -> Tensor:
    """log(exp(input) + exp(other)), without overflow. `torch.logaddexp`. Raises DTypeError for whole numbers."""
    a, b = _promote_floats("logaddexp", input, other)
    first = ops.Greater(a, b)
    most, least = ops.Where(first, a, b), ops.Where(first, b, a)
    # the difference itself, for a size has no second derivative at 0; equal infinities have none
    none = ops.And(ops.Equal(a, b), isinf(most))
    apart = ops.Where(none, scalar(0, a.array.dtype), ops.Sub(least, most))
    return ops.Add(most, ops.Softplus(apart))


def logaddexp2(input: Any, other: Any) -> Tensor:
    """log2(2^input + 2^other), without overflow. `torch.logaddexp2`. Raises DTypeError for whole numbers."""
    a, b = _promote_floats("logaddexp2", input, other)
    two = scalar(log_of(2), a.array.dtype)
    return ops.Div(logaddexp(ops.Mul(a, two), ops.Mul(b, two)), two)


def _times_log(op: Any, input: Any, other: Any, zero: float) -> Tensor:
    """input · op(other), and 0 where the input is 0, whatever the other is but NaN; op is a logarithm, which has no
    value up to `zero`. Elsewhere it is the slope of an input of 0, too."""
    a, b = _floats(input, other)
    valueless = logical_or(ops.LessOrEqual(b, scalar(zero, b.array.dtype)), isinf(b))
    none = ops.And(eq(a, 0), valueless)
    return ops.Mul(a, op(where(none, zero + 1, b)))


def xlogy(input: Any, other: Any) -> Tensor:
    """input · log(other), and 0 where the input is 0. `torch.xlogy`."""
    return _times_log(ops.Log, input, other, 0.0)


def xlog1py(input: Any, other: Any) -> Tensor:
    """input · log(1 + other), and 0 where the input is 0. `torch.special.xlog1py`."""
    return _times_log(ops.Log1p, input, other, -1.0)


def logit(input: Any, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of sigmoid; with `eps` of x held between eps and 1 - eps. `torch.logit`."""
    x = floating(input)
    dtype = x.array.dtype
    if eps is not None:
        x = ops.Clip(x, scalar(eps, dtype), scalar(1 - eps, dtype))
    return ops.Sub(ops.Log(x), ops.Log(ops.Sub(scalar(1, dtype), x)))  # a quotient has no slope at 0 and 1


@upcast_half
def sinc(input: Any) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0. `torch.sinc`."""
    x = floating(input)
    dtype = x.array.dtype
    none, one = eq(x, 0), scalar(1, dtype)
    angle = ops.Mul(ops.Where(none, one, x), scalar(pi, dtype))
    return ops.Where(none, one, ops.Div(ops.Sin(angle), angle))


def float_power(input: Any, exponent: Any) -> Tensor:
    """A power in float64, whatever the types. `torch.float_power`."""
    if is_tensor(exponent):
        exponent = cast(exponent, float64)
    return pow(cast(input, float64) if is_tensor(input) else float(input), exponent)


def polygamma(n: int, input: Any) -> Tensor:
    """The n-th derivative of the digamma function. `torch.polygamma`.

    Raises:
        ArgumentError: n below 0.
    """
    if n < 0:
        raise ArgumentError("polygamma's order is 0 or more", got=str(n))
    return in_single(ops.Polygamma, floating(input), n=n) if n else digamma(input)


def gammainc(input: Any, other: Any) -> Tensor:
    """The regularized lower incomplete gamma function of the shape `input` at `other`; no gradient reaches the shape.
    `torch.special.gammainc`, `torch.igamma`. Cannot be recorded.

    Raises:
        DTypeError: whole numbers.
        ArgumentError: (at backward) a gradient for the shape.
    """
    return _incomplete(ops.Gammainc, "gammainc", input, other)


def gammaincc(input: Any, other: Any) -> Tensor:
    """1 - gammainc, the upper one, without the loss of the subtraction. `torch.special.gammaincc`, `torch.igammac`."""
    return _incomplete(ops.Gammaincc, "gammaincc", input, other)


def _incomplete(op: Any, name: str, input: Any, other: Any) -> Tensor:
    a, x = _promote_floats(name, input, other)
    dtype = a.array.dtype
    if dtype == float64:
        return op(a, x)
    return cast(op(cast(a, float64), cast(x, float64)), dtype)


igamma, igammac = gammainc, gammaincc


def mvlgamma(input: Any, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p. `torch.mvlgamma`."""
    if p < 1:
        raise ArgumentError("mvlgamma's dimension is 1 or more", got=str(p))
    x = floating(input)
    total: Any = p * (p - 1) / 4 * log_of(pi)
    for i in range(p):
        total = lgamma(x - i / 2) + total
    return total


def angle(input: Any) -> Tensor:
    """pi where negative, else 0: the angle of a real number. `torch.angle`."""
    x = floating(input)
    dtype = x.array.dtype
    return ops.Where(isnan(x), x, ops.Where(x < 0, scalar(pi, dtype), scalar(0, dtype)))
