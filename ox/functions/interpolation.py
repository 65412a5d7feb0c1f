"""Several tensors made into one, element by element, and values put in the place of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core.constants import scalar
from ox.core.promotion import cast, promote_operands, upcast_half
from ox.core.tensor import is_tensor
from ox.dtypes import bool_, int32, int64, is_floating
from ox.errors import DTypeError
from ox.functions.comparison import eq, isnan, isneginf, isposinf, signbit
from ox.functions.operand_arguments import floating, only_floats
from ox.functions.pointwise import abs, clamp, div, maximum, minimum, mul, pow, sign, where
from ox.functions.zero_gradients import with_zero_gradient

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "addcdiv", "addcmul", "clamp_max", "clamp_min", "clone", "conj", "conj_physical", "copysign", "fmax", "fmin",
    "gcd", "heaviside", "imag", "lcm", "ldexp", "lerp", "nan_to_num", "positive", "real", "resolve_conj",
    "resolve_neg", "rsub", "sgn", "true_divide",
]  # fmt: skip


def rsub(input: Any, other: Any, *, alpha: float = 1) -> Tensor:
    """other - alpha · input. `torch.rsub`."""
    return other - (input if alpha == 1 else input * alpha)


@upcast_half
def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """input + value · tensor1 · tensor2. `torch.addcmul`."""
    product = promote_operands(tensor1, input)[0] * tensor2
    return input + (product if value == 1 else product * value)


@upcast_half
def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """input + value · tensor1 / tensor2. `torch.addcdiv`. Raises DTypeError where both are whole numbers."""
    if not is_floating(tensor1.array.dtype) and not is_floating(tensor2.array.dtype):
        raise DTypeError("addcdiv divides floats", got=str(tensor1.array.dtype), hint="x.float()")
    quotient = promote_operands(tensor1, input)[0] / tensor2
    return input + (quotient if value == 1 else quotient * value)


@upcast_half
def lerp(input: Any, end: Any, weight: Any) -> Tensor:
    """input + weight · (end - input). `torch.lerp`. Raises DTypeError for whole numbers or mixed types."""
    _one_type("lerp", input, end, weight)
    return ops.Add(input, mul(ops.Sub(end, input), weight))


def _one_type(name: str, *tensors: Any) -> None:
    given = [x for x in tensors if is_tensor(x)]
    only_floats(name, *given)
    for x in given[1:]:
        if x.array.dtype != given[0].array.dtype:
            raise DTypeError(
                f"{name} takes tensors of one type",
                expected=str(given[0].array.dtype),
                got=str(x.array.dtype),
                hint=f"x.to(ox.{given[0].array.dtype})",
            )


def copysign(input: Any, other: Any) -> Tensor:
    """The size of `input` with the sign of `other`, to which a gradient of 0 flows back. `torch.copysign`."""
    a, b = promote_operands(input, other)
    size = abs(floating(a))
    return with_zero_gradient(ops.Where(signbit(b), ops.Neg(size), size), b)


def sgn(input: Any) -> Tensor:
    """As `sign`, for no tensor of ox is complex. `torch.sgn`."""
    return sign(input)


def nan_to_num(
    input: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN and the infinities replaced: by 0 and the type's extremes where no number is given. `torch.nan_to_num`."""
    dtype = input.array.dtype
    if not is_floating(dtype):
        return input
    from ox.functions.dtype_queries import finfo

    greatest = finfo(dtype).max
    x = where(isnan(input), 0.0 if nan is None else nan, input)
    x = where(isposinf(input), greatest if posinf is None else posinf, x)
    return where(isneginf(input), -greatest if neginf is None else neginf, x)


def clamp_min(input: Any, min: Any) -> Tensor:
    """At least `min`. `torch.clamp_min`."""
    return maximum(input, min) if input.array.dtype == bool_ else clamp(input, min=min)


def clamp_max(input: Any, max: Any) -> Tensor:
    """At most `max`. `torch.clamp_max`."""
    return minimum(input, max) if input.array.dtype == bool_ else clamp(input, max=max)


def heaviside(input: Any, values: Any) -> Tensor:
    """0 below 0, 1 above, and `values` at 0. `torch.heaviside`. Raises DTypeError for mixed types."""
    if input.array.dtype != values.array.dtype:
        raise DTypeError(
            "heaviside takes tensors of one type", expected=str(input.array.dtype), got=str(values.array.dtype)
        )
    return with_zero_gradient(where(eq(input, 0), values, cast(input > 0, input.array.dtype)), input)


def fmax(input: Any, other: Any) -> Tensor:
    """The larger of two; NaN only where both are. `torch.fmax`."""
    return _without_nan(ops.GreaterOrEqual, input, other)


def fmin(input: Any, other: Any) -> Tensor:
    """The smaller of two; NaN only where both are. `torch.fmin`."""
    return _without_nan(ops.LessOrEqual, input, other)


def _without_nan(first: Any, input: Any, other: Any) -> Tensor:
    a, b = promote_operands(input, other)
    if a.array.dtype == bool_:
        return (ops.Or if first is ops.GreaterOrEqual else ops.And)(a, b)
    chosen = first(a, b)  # of equal ones the first, whose is the whole gradient
    return ops.Where(ops.Or(chosen, isnan(b)) if is_floating(a.array.dtype) else chosen, a, b)


def gcd(input: Any, other: Any) -> Tensor:
    """The greatest common divisor. `torch.gcd`. Raises DTypeError for what is no whole number."""
    a, b = promote_operands(input, other)
    dtype = a.array.dtype
    if is_floating(dtype) or dtype == bool_:
        raise DTypeError("gcd is for whole numbers", got=str(dtype), hint="x.long()")
    if dtype in (int32, int64):
        return ops.Gcd(a, b)
    return cast(ops.Gcd(cast(a, int64), cast(b, int64)), dtype)


def lcm(input: Any, other: Any) -> Tensor:
    """The least common multiple. `torch.lcm`. Raises DTypeError for what is no whole number."""
    a, b = promote_operands(input, other)
    divisor = gcd(a, b)
    safe = ops.Where(eq(divisor, 0), scalar(1, divisor.array.dtype), divisor)
    product = ops.Mul(ops.Div(a, safe), b)
    return abs(product)


def ldexp(input: Any, other: Any) -> Tensor:
    """input · 2^other. `torch.ldexp`."""
    return mul(input, pow(2.0, other))


def positive(input: Any) -> Tensor:
    """The tensor itself. `torch.positive`. Raises DTypeError for bools."""
    if input.array.dtype == bool_:
        raise DTypeError("positive is for numbers", got="bool")
    return input


def real(input: Any) -> Tensor:
    """The tensor itself, or the real parts of what `ox.fft` gave. `torch.real`."""
    return input.real if _is_complex(input) else input


def imag(input: Any) -> Tensor:
    """The imaginary parts of what `ox.fft` gave. `torch.imag`. Raises DTypeError for real numbers."""
    if not _is_complex(input):
        raise DTypeError("imag is for complex numbers", got=str(input.array.dtype))
    return input.imag


def _is_complex(x: Any) -> bool:
    return is_tensor(x) and x.is_complex()


def conj(input: Any) -> Tensor:
    """The tensor itself, or the conjugates of what `ox.fft` gave. `torch.conj`."""
    return input.conj() if _is_complex(input) else input


def resolve_conj(input: Any) -> Tensor:
    """The tensor itself: conjugates are always computed at once. `torch.resolve_conj`."""
    return input


conj_physical, resolve_neg = conj, resolve_conj
true_divide = div


def clone(input: Any, *, memory_format: Any = None) -> Tensor:
    """A copy in new memory; gradients pass. `torch.clone`."""
    return input.clone(memory_format=memory_format)
