"""Functions that compare and decide, element by element: comparisons, logic, bits, what is finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.core.constants import scalar
from ox.core.promotion import cast, promote_operands
from ox.core.tensor import is_tensor
from ox.dtypes import UNSIGNED, bool_, float32, float64, int32, int64, is_floating
from ox.errors import ArgumentError, DTypeError
from ox.functions.operand_arguments import like, named
from ox.functions.out_argument import write

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "eq", "ge",
    "greater", "greater_equal", "gt", "isclose", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "le",
    "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "ne", "not_equal",
    "signbit",
]  # fmt: skip


def comparable(a: Any, b: Any) -> tuple[Any, Any]:
    """The operands of a comparison in one type; also of a tensor with a whole number that its type does not have."""
    try:
        return promote_operands(a, b)
    except ArgumentError:
        if is_tensor(b):
            return comparable(b, a)[::-1]
        if -(1 << 63) <= b < 1 << 63:
            return cast(a, int64), scalar(b, int64)
        return cast(a, float64), scalar(np.inf if b > 0 else -np.inf, float64)  # beyond all of them


def _comparison(op: Any, name: str) -> Any:
    def function(input: Any, other: Any, *, out: Any = None) -> Tensor:
        if out is not None:
            return write(function(input, other), out, name)
        a, b = comparable(input, other)
        if a.array.dtype == bool_:  # ONNX does not order bools
            a, b = cast(a, int32), cast(b, int32)
        return op(a, b)

    return named(function, name, op.__doc__)


def eq(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """Equal, element by element. `torch.eq`."""
    if out is not None:
        return write(eq(input, other), out, "eq")
    return ops.Equal(*comparable(input, other))


lt, gt = _comparison(ops.Less, "lt"), _comparison(ops.Greater, "gt")
le, ge = _comparison(ops.LessOrEqual, "le"), _comparison(ops.GreaterOrEqual, "ge")


def ne(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """Not equal, element by element."""
    if out is not None:
        return write(ne(input, other), out, "ne")
    return ops.Not(ops.Equal(*comparable(input, other)))


def logical_not(input: Any, *, out: Any = None) -> Tensor:
    """True where zero or false."""
    if out is not None:
        return write(logical_not(input), out, "logical_not")
    return ops.Not(cast(input, bool_))


def _truths(input: Any, other: Any, name: str) -> tuple[Tensor, Tensor]:
    if not is_tensor(input):
        raise ArgumentError(f"{name} takes a tensor first", got=type(input).__name__, hint="ox.tensor(value)")
    return cast(input, bool_), cast(like(other, input), bool_)


def logical_and(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """True where both are true or not zero."""
    if out is not None:
        return write(logical_and(input, other), out, "logical_and")
    return ops.And(*_truths(input, other, "logical_and"))


def logical_or(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """True where one is true or not zero."""
    if out is not None:
        return write(logical_or(input, other), out, "logical_or")
    return ops.Or(*_truths(input, other, "logical_or"))


def logical_xor(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """True where just one is true or not zero."""
    if out is not None:
        return write(logical_xor(input, other), out, "logical_xor")
    return ne(*_truths(input, other, "logical_xor"))


def _bitwise(name: str, x: Any) -> Any:
    if is_floating(x.array.dtype):
        raise DTypeError(f"{name} is for bools and integers", got=str(x.array.dtype), hint="(x > 0) & (y > 0)")
    return x.array.dtype


def bitwise_not(input: Any, *, out: Any = None) -> Tensor:
    """`~x`: every bit turned; of bools, not. `torch.bitwise_not`."""
    if out is not None:
        return write(bitwise_not(input), out, "bitwise_not")
    dtype = _bitwise("~", input)
    return ops.Not(input) if dtype == bool_ else ops.BitwiseNot(input)


def bitwise_and(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """`a & b`: bits set in both; of bools, and. `torch.bitwise_and`."""
    if out is not None:
        return write(bitwise_and(input, other), out, "bitwise_and")
    input, other = promote_operands(input, other)
    return (ops.And if _bitwise("&", input) == bool_ else ops.BitwiseAnd)(input, other)


def bitwise_xor(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """`a ^ b`: bits set in just one; of bools, unequal. `torch.bitwise_xor`."""
    if out is not None:
        return write(bitwise_xor(input, other), out, "bitwise_xor")
    input, other = promote_operands(input, other)
    return ne(input, other) if _bitwise("^", input) == bool_ else ops.BitwiseXor(input, other)


def bitwise_or(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """`a | b`: bits set in one or both; of bools, or. `torch.bitwise_or`."""
    if out is not None:
        return write(bitwise_or(input, other), out, "bitwise_or")
    input, other = promote_operands(input, other)
    return (ops.Or if _bitwise("|", input) == bool_ else ops.BitwiseOr)(input, other)


def bitwise_left_shift(input: Any, other: Any) -> Tensor:
    """`input << other`; bits that leave are lost. `torch.bitwise_left_shift`."""
    a, b = promote_operands(input, other)
    dtype = _shiftable("<<", a)
    if dtype in UNSIGNED:
        return ops.BitShift(a, b, direction="LEFT")
    wide = ops.Mul(cast(a, int64), ops.Pow(scalar(2, int64), cast(b, int64)))
    return cast(ops.Where(lt(b, 8 * dtype.itemsize), cast(wide, dtype), scalar(0, dtype)), dtype)


def bitwise_right_shift(input: Any, other: Any) -> Tensor:
    """`input >> other`, which keeps the sign. `torch.bitwise_right_shift`."""
    a, b = promote_operands(input, other)
    dtype = _shiftable(">>", a)
    if dtype in UNSIGNED:
        return ops.BitShift(a, b, direction="RIGHT")
    # by 62 bits at most at once, for 2^63 is no int64; what a further shift makes of -2 to 1 the next does, too
    first = ops.Min(cast(b, int64), scalar(62, int64))
    rest = ops.Min(ops.Sub(cast(b, int64), first), scalar(1, int64))
    x = cast(a, int64)
    for steps in (first, rest):
        divisor = ops.Pow(scalar(2, int64), steps)
        x = ops.Div(ops.Sub(x, ops.Mod(x, divisor)), divisor)
    return cast(x, dtype)


def _shiftable(name: str, x: Any) -> Any:
    if _bitwise(name, x) == bool_:
        raise DTypeError(f"{name} does not shift bools", hint="x.int() first")
    return x.array.dtype


def isnan(input: Any) -> Tensor:
    """True where NaN (the only value that differs from itself)."""
    return ops.Not(ops.Equal(input, input))


def isinf(input: Any) -> Tensor:
    """True where infinite; nowhere among integers."""
    if not is_floating(input.array.dtype):
        return isnan(input)
    return ops.Equal(ops.Abs(input), scalar(np.inf, input.array.dtype))


def isfinite(input: Any) -> Tensor:
    """True where neither infinite nor NaN."""
    if not is_floating(input.array.dtype):
        return ops.Equal(input, input)
    return ops.Less(ops.Abs(input), scalar(np.inf, input.array.dtype))


def isclose(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """|a - b| <= atol + rtol·|b|, element by element; equal infinities are close. `torch.isclose`.

    Raises:
        ArgumentError: a tolerance below 0.
    """
    if rtol < 0 or atol < 0:
        raise ArgumentError("tolerances are 0 or more", got=f"{rtol=}, {atol=}")
    input, other = (cast(x, float64) if x.array.dtype != float32 else x for x in promote_operands(input, other))
    with np.errstate(all="ignore"):  # of infinities
        near = ops.And(ops.LessOrEqual(ops.Abs(input - other), ops.Abs(other) * rtol + atol), isfinite(other))
    near = ops.Or(near, ops.Equal(input, other))
    return ops.Or(near, ops.And(isnan(input), isnan(other))) if equal_nan else near


def isposinf(input: Any) -> Tensor:
    """True where +infinity. `torch.isposinf`."""
    return eq(input, np.inf) if is_floating(input.array.dtype) else isnan(input)


def isneginf(input: Any) -> Tensor:
    """True where -infinity. `torch.isneginf`."""
    return eq(input, -np.inf) if is_floating(input.array.dtype) else isnan(input)


def isreal(input: Any) -> Tensor:
    """True everywhere: no tensor of ox is complex. `torch.isreal`."""
    return ops.Or(ops.Equal(input, input), isnan(input))


def signbit(input: Any) -> Tensor:
    """True where the sign is minus, as it is of -0.0. `torch.signbit`."""
    if is_floating(input.array.dtype):
        return ops.SignBit(input)
    return lt(input, 0)


greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
