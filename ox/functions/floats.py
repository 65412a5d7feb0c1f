"""Floating-point numbers taken apart: frexp, nextafter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core.constants import scalar
from ox.core.promotion import cast, promote_operands
from ox.dtypes import HALF_TYPES, float32, int32
from ox.functions.comparison import isfinite
from ox.functions.operand_arguments import only_floats
from ox.functions.return_types import MantissaExponent
from ox.functions.zero_gradients import with_zero_gradient

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["frexp", "nextafter"]


def frexp(input: Any) -> MantissaExponent:
    """A mantissa of a size in [0.5, 1) and an int32 exponent with input = mantissa · 2^exponent; 0, infinities and NaN
    are themselves, with the exponent 0. `torch.frexp`.

    Raises:
        DTypeError: whole numbers.
    """
    only_floats("frexp", input)
    dtype = input.array.dtype
    if dtype in HALF_TYPES:
        mantissa, exponent = frexp(cast(input, float32))
        return MantissaExponent(cast(mantissa, dtype), exponent)
    zero, one = scalar(0, dtype), scalar(1, dtype)
    regular = ops.And(isfinite(input), ops.Not(ops.Equal(input, zero)))
    size = ops.Where(regular, ops.Abs(input.detach()), one)
    logarithm = ops.Div(ops.Log(size), ops.Log(scalar(2, dtype)))
    power = ops.Add(ops.Floor(logarithm), one)
    # the logarithm may be rounded over a whole number
    size = _scaled(size, ops.Neg(power))
    power = ops.Add(power, cast(ops.GreaterOrEqual(size, one), dtype))
    power = ops.Sub(power, cast(ops.Less(size, scalar(0.5, dtype)), dtype))
    power = ops.Where(regular, power, zero)
    return MantissaExponent(_scaled(input, ops.Neg(power)), cast(power, int32))


def _scaled(x: Tensor, power: Tensor) -> Tensor:
    """x · 2^power in two steps, for 2^power alone may overflow."""
    first = ops.Floor(ops.Mul(power, scalar(0.5, x.array.dtype)))
    two = scalar(2, x.array.dtype)
    return ops.Mul(ops.Mul(x, ops.Pow(two, first)), ops.Pow(two, ops.Sub(power, first)))


def nextafter(input: Any, other: Any) -> Tensor:
    """The number next to `input` that its type has, in the direction of `other`. `torch.nextafter`. Cannot be recorded.

    Raises:
        DTypeError: whole numbers.
    """
    a, b = promote_operands(input, other)
    only_floats("nextafter", a)
    return with_zero_gradient(ops.NextAfter(a, b.detach()), b)
