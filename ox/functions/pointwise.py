"""Functions that work element by element, and the matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.dtypes import bool_, float32, float64, get_default_dtype, int64, is_floating
from ox.errors import ArgumentError, DTypeError
from ox.operands import cast, meet, scalar, scalar_type
from ox.ops import operator
from ox.ops.dim import Dim
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor


def like(value: Any, x: Any) -> Tensor:
    """A number, array or tensor as a tensor that can meet `x`: Python numbers take its type where they fit it."""
    if hasattr(value, "node"):
        return value  # type: ignore[no-any-return]
    if isinstance(value, (bool, int, float, np.generic)):
        return scalar(value, scalar_type(value, x.data.dtype))
    return operator.as_input(value)


def _floating(x: Any) -> Tensor:
    return x if is_floating(x.data.dtype) else cast(x, get_default_dtype())


def _unary(op: Any) -> Any:
    def function(x: Any) -> Tensor:
        return op(x)  # type: ignore[no-any-return]

    function.__doc__ = op.__doc__
    function.__name__ = op.name.lower()
    return function


def _unary_float(op: Any) -> Any:
    """An operator for floats only: integers become the default float type first, as in PyTorch."""

    def function(x: Any) -> Tensor:
        return op(_floating(x))  # type: ignore[no-any-return]

    function.__doc__ = op.__doc__
    function.__name__ = op.name.lower()
    return function


neg, abs, relu, sign = map(_unary, (ops.Neg, ops.Abs, ops.Relu, ops.Sign))
sqrt, reciprocal, exp, log, sin, cos = map(_unary_float, (ops.Sqrt, ops.Reciprocal, ops.Exp, ops.Log, ops.Sin, ops.Cos))
erf, tanh, sigmoid = map(_unary_float, (ops.Erf, ops.Tanh, ops.Sigmoid))


def rsqrt(x: Any) -> Tensor:
    """1 / sqrt(x)."""
    return ops.Reciprocal(ops.Sqrt(_floating(x)))


def add(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    """a + alpha·b. `torch.add`."""
    return a + b if alpha == 1 else a + b * alpha  # type: ignore[no-any-return]


def sub(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    """a - alpha·b. `torch.sub`."""
    return a - b if alpha == 1 else a - b * alpha  # type: ignore[no-any-return]


def mul(a: Any, b: Any) -> Tensor:
    """Product element by element. `torch.mul`."""
    return a * b  # type: ignore[no-any-return]


def _rounding(op: Any, mode: str | None) -> ArgumentError:
    return ArgumentError(
        f"{op} has no rounding_mode {mode!r}", where=users_line(3), expected="None, 'floor' or 'trunc'"
    )


def div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor:
    """True division: integers become the default float type first. `torch.div`.

    Args:
        rounding_mode: "floor" as `floor_divide`, "trunc" towards zero.

    Raises:
        ArgumentError: integers divided by zero with a rounding mode, or another mode.
    """
    if rounding_mode == "floor":
        return floor_divide(a, b)
    a, b = meet(a, b)
    if rounding_mode == "trunc":
        if is_floating(a.data.dtype):
            quotient = ops.Div(a, b)
            return ops.Mul(ops.Sign(quotient), ops.Floor(ops.Abs(quotient)))
        return ops.Div(a, _no_zeros(b))
    if rounding_mode is not None:
        raise _rounding("div", rounding_mode)
    return ops.Div(_floating(a), _floating(b))


def _no_zeros(divisor: Tensor) -> Tensor:
    if isinstance(divisor.data, np.ndarray) and not divisor.data.all():
        raise ArgumentError(
            "integers are not divided by zero", where=users_line(3), hint="x.float() first, which gives infinities"
        )
    return divisor


def floor_divide(a: Any, b: Any) -> Tensor:
    """Division rounded towards minus infinity. `torch.floor_divide`.

    Raises:
        ArgumentError: integers divided by zero.
    """
    a, b = meet(a, b)
    zero = scalar(0, a.data.dtype)
    if is_floating(a.data.dtype):
        # from the exact remainder, as in Python: 1 // 0.1 is 9 though 1 / 0.1 rounds to 10; flat, so no gradient
        a, b = a.detach(), b.detach()
        whole = ops.Div(ops.Sub(a, remainder(a, b)), b)
        rounded = ops.Floor(ops.Add(whole, scalar(0.5, a.data.dtype)))
        return ops.Where(ops.Equal(b, zero), ops.Div(a, b), rounded)
    quotient = ops.Div(a, _no_zeros(b))  # truncates; one less where the signs differ and a remainder is left
    product = ops.Mul(quotient, b)
    below = ops.And(ne(product, a), ne(ops.Less(a, zero), ops.Less(b, zero)))
    return ops.Sub(quotient, cast(below, a.data.dtype))


def remainder(a: Any, b: Any) -> Tensor:
    """What `floor_divide` leaves; takes the sign of the divisor. `torch.remainder`.

    Raises:
        ArgumentError: integers divided by zero.
    """
    a, b = meet(a, b)
    if not is_floating(a.data.dtype):
        return ops.Mod(a, _no_zeros(b))
    if b.node is not None:
        return ops.Sub(a, ops.Mul(b, floor_divide(a, b)))  # Mod has no gradient for its divisor
    left = ops.Mod(a, b, fmod=1)  # of the sign of a
    zero = scalar(0, a.data.dtype)
    other = ops.And(ne(left, zero), ne(ops.Less(left, zero), ops.Less(b, zero)))
    return ops.Where(other, ops.Add(left, b), left)


def pow(a: Any, b: Any) -> Tensor:
    """a to the power b. `torch.pow`.

    Raises:
        ArgumentError: integers to a negative number.
    """
    if isinstance(b, (int, float, np.integer, np.floating)) and not isinstance(b, Dim) and hasattr(a, "node"):
        if a.data.dtype == bool_ or (isinstance(b, (float, np.floating)) and not is_floating(a.data.dtype)):
            a = cast(a, scalar_type(b, int64 if not isinstance(b, (float, np.floating)) else a.data.dtype))
        if b == 2:
            return ops.Mul(a, a)
        if b < 0 and not is_floating(a.data.dtype):
            raise ArgumentError(
                "integers have no negative powers among the integers",
                where=users_line(2),
                got=f"{a.data.dtype} ** {b}",
                hint="x.float() first, or a float exponent",
            )
        b = scalar(b, a.data.dtype)
    else:
        a, b = meet(a, b)
    if a.data.dtype in _POWERS or is_floating(a.data.dtype):
        return ops.Pow(a, b)
    return cast(ops.Pow(cast(a, int64), cast(b, int64)), a.data.dtype)  # ONNX has no powers of the small integers


_POWERS = (np.dtype(np.int32), int64)


def square(x: Any) -> Tensor:
    """x·x. `torch.square`."""
    return ops.Mul(x, x)


def floor(x: Any) -> Tensor:
    """The greatest whole number that is not above. `torch.floor`."""
    return ops.Floor(x) if is_floating(x.data.dtype) else x


def ceil(x: Any) -> Tensor:
    """The smallest whole number that is not below. `torch.ceil`."""
    return ops.Neg(ops.Floor(ops.Neg(x))) if is_floating(x.data.dtype) else x


def matmul(a: Any, b: Any) -> Tensor:
    """Matrix product of the last two dimensions, the others broadcast. `torch.matmul`, ONNX MatMul."""
    return ops.MatMul(a, like(b, a))


def _extreme(op: Any, on_bools: Any) -> Any:
    def function(a: Any, b: Any) -> Tensor:
        a, b = meet(a, b)
        return on_bools(a, b) if a.data.dtype == bool_ else op(a, b)  # type: ignore[no-any-return]

    which = op.name.lower()
    size = "larger" if which == "max" else "smaller"
    function.__doc__ = f"The {size} of two, element by element. `torch.{which}imum`."
    function.__name__ = f"{which}imum"
    return function


maximum, minimum = _extreme(ops.Max, ops.Or), _extreme(ops.Min, ops.And)


def clamp(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """Limit to [min, max]; either may be None; tensors are broadcast. `torch.clamp`, ONNX Clip.

    Raises:
        ArgumentError: neither bound is given.
    """
    if min is None and max is None:
        raise ArgumentError("clamp needs min, max or both", where=users_line(2))
    bounds = [None if b is None else meet(x, b)[1] for b in (min, max)]
    for bound in bounds:
        if bound is not None:
            x = meet(x, bound)[0]
    low, high = [None if b is None else cast(b, x.data.dtype) for b in bounds]
    if all_plain(low, high):
        return ops.Clip(x, low, high)
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)  # type: ignore[no-any-return]


def all_plain(*bounds: Any) -> bool:
    """Whether Clip takes these: single numbers through which no gradient passes."""
    return not [b for b in bounds if b is not None and (b.data.ndim or b.node is not None)]


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """`a` where `condition`, else `b`; they meet in one type. `torch.where`, ONNX Where."""
    if not hasattr(a, "node") and not hasattr(b, "node"):
        from ox.creation import as_tensor

        a = as_tensor(a)
    return ops.Where(cast(condition, bool_), *meet(a, b))


def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """`value` where `mask`, else `x`. `torch.masked_fill`."""
    return ops.Where(mask, cast(like(value, x), x.data.dtype), x)


def _comparison(op: Any) -> Any:
    def function(a: Any, b: Any) -> Tensor:
        return op(*meet(a, b))  # type: ignore[no-any-return]

    function.__doc__ = op.__doc__
    return function


eq, lt, gt = map(_comparison, (ops.Equal, ops.Less, ops.Greater))
le, ge = map(_comparison, (ops.LessOrEqual, ops.GreaterOrEqual))


def ne(a: Any, b: Any) -> Tensor:
    """Not equal, element by element."""
    return ops.Not(ops.Equal(*meet(a, b)))


def logical_not(x: Any) -> Tensor:
    """True where zero or false."""
    return ops.Not(cast(x, bool_))


def logical_and(a: Any, b: Any) -> Tensor:
    """True where both are true or not zero."""
    return ops.And(cast(a, bool_), cast(like(b, a), bool_))


def logical_or(a: Any, b: Any) -> Tensor:
    """True where one is true or not zero."""
    return ops.Or(cast(a, bool_), cast(like(b, a), bool_))


def logical_xor(a: Any, b: Any) -> Tensor:
    """True where just one is true or not zero."""
    return ne(cast(a, bool_), cast(like(b, a), bool_))


def _ones(dtype: Any) -> Tensor:
    """All bits of an integer type."""
    return scalar(-1 if dtype.kind == "i" else np.iinfo(dtype).max, dtype)


def _bitwise(name: str, x: Any) -> Any:
    if is_floating(x.data.dtype):
        raise DTypeError(
            f"{name} is for bools and integers", where=users_line(3), got=str(x.data.dtype), hint="(x > 0) & (y > 0)"
        )
    return x.data.dtype


def bitwise_not(x: Any) -> Tensor:
    """`~x`: every bit turned; of bools, not. `torch.bitwise_not`."""
    dtype = _bitwise("~", x)
    return ops.Not(x) if dtype == bool_ else ops.BitwiseXor(x, _ones(dtype))


def bitwise_and(a: Any, b: Any) -> Tensor:
    """`a & b`: bits set in both; of bools, and. `torch.bitwise_and`."""
    a, b = meet(a, b)
    return (ops.And if _bitwise("&", a) == bool_ else ops.BitwiseAnd)(a, b)


def bitwise_xor(a: Any, b: Any) -> Tensor:
    """`a ^ b`: bits set in just one; of bools, unequal. `torch.bitwise_xor`."""
    a, b = meet(a, b)
    return ne(a, b) if _bitwise("^", a) == bool_ else ops.BitwiseXor(a, b)


def bitwise_or(a: Any, b: Any) -> Tensor:
    """`a | b`: bits set in one or both; of bools, or. `torch.bitwise_or`."""
    a, b = meet(a, b)
    if _bitwise("|", a) == bool_:
        return ops.Or(a, b)
    return ops.BitwiseXor(ops.BitwiseXor(a, b), ops.BitwiseAnd(a, b))


def isnan(x: Any) -> Tensor:
    """True where NaN (the only value that differs from itself)."""
    return ops.Not(ops.Equal(x, x))


def isinf(x: Any) -> Tensor:
    """True where infinite; nowhere among integers."""
    if not is_floating(x.data.dtype):
        return isnan(x)
    return ops.Equal(ops.Abs(x), scalar(np.inf, x.data.dtype))


def isfinite(x: Any) -> Tensor:
    """True where neither infinite nor NaN."""
    if not is_floating(x.data.dtype):
        return ops.Equal(x, x)
    return ops.Less(ops.Abs(x), scalar(np.inf, x.data.dtype))


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """|a - b| <= atol + rtol·|b|, element by element; equal infinities are close. `torch.isclose`."""
    a, b = (cast(x, float64) if x.data.dtype != float32 else x for x in meet(a, b))
    with np.errstate(all="ignore"):  # of infinities
        near = ops.And(ops.LessOrEqual(ops.Abs(a - b), ops.Abs(b) * rtol + atol), isfinite(b))
    near = ops.Or(near, ops.Equal(a, b))
    return ops.Or(near, ops.And(isnan(a), isnan(b))) if equal_nan else near
