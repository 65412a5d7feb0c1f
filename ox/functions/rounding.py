"""Whole numbers nearby, and what division leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core.constants import scalar
from ox.core.promotion import promote_operands
from ox.dtypes import bool_, is_floating
from ox.errors import DTypeError
from ox.functions.operand_arguments import only_floats
from ox.functions.out_argument import write
from ox.functions.pointwise import no_zeros

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["ceil", "fix", "floor", "fmod", "frac", "round", "trunc"]


def _rounded(op: Any, input: Any) -> Tensor:
    """Whole numbers stay as they are."""
    if input.array.dtype == bool_:
        raise DTypeError(f"{op.name.lower()} is for numbers", got="bool")
    return op(input) if is_floating(input.array.dtype) else input


def floor(input: Any, *, out: Any = None) -> Tensor:
    """The greatest whole number that is not above. `torch.floor`, ONNX Floor."""
    if out is not None:
        return write(floor(input), out, "floor")
    return _rounded(ops.Floor, input)


def ceil(input: Any, *, out: Any = None) -> Tensor:
    """The smallest whole number that is not below. `torch.ceil`, ONNX Ceil."""
    if out is not None:
        return write(ceil(input), out, "ceil")
    return _rounded(ops.Ceil, input)


def round(input: Any, *, decimals: int = 0, out: Any = None) -> Tensor:
    """The nearest whole number, the even one of two; or the nearest of so many decimals. `torch.round`, ONNX Round."""
    if out is not None:
        return write(round(input, decimals=decimals), out, "round")
    if decimals == 0:
        return _rounded(ops.Round, input)
    only_floats("round to decimals", input)
    power = scalar(10.0 ** abs(decimals), input.array.dtype)
    if decimals > 0:
        return ops.Div(ops.Round(ops.Mul(input, power)), power)
    return ops.Mul(ops.Round(ops.Div(input, power)), power)


def trunc(input: Any) -> Tensor:
    """The whole number next to it on the way to 0. `torch.trunc`."""
    if not is_floating(input.array.dtype):
        return _rounded(ops.Floor, input)
    return ops.Where(ops.Less(input, scalar(0, input.array.dtype)), ops.Ceil(input), ops.Floor(input))


def frac(input: Any) -> Tensor:
    """What `trunc` takes away, with its sign. `torch.frac`. Raises DTypeError for whole numbers."""
    only_floats("frac", input)
    return ops.Sub(input, trunc(input))


def fmod(input: Any, other: Any) -> Tensor:
    """What division towards 0 leaves; takes the sign of `input`. `torch.fmod`, ONNX Mod.

    Raises:
        ArgumentError: integers divided by zero.
    """
    a, b = promote_operands(input, other)
    return ops.Mod(a, b if is_floating(a.array.dtype) else no_zeros(b), fmod=1)


fix = trunc
