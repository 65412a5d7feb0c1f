"""Arithmetic element by element, and the matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.dtypes import bool_, int64, is_floating
from ox.errors import ArgumentError, ShapeError
from ox.functions.comparing import ne
from ox.functions.operand import floating, like, unary, unary_float
from ox.operands import cast, meet, scalar, scalar_type
from ox.ops.dim import Dim
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor


neg, abs, relu, sign = map(unary, (ops.Neg, ops.Abs, ops.Relu, ops.Sign))
reciprocal = unary_float(ops.Reciprocal)


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
            return ops.Where(
                ops.Less(quotient, scalar(0, quotient.data.dtype)), ops.Ceil(quotient), ops.Floor(quotient)
            )
        return ops.Div(a, no_zeros(b))
    if rounding_mode is not None:
        raise _rounding("div", rounding_mode)
    return ops.Div(floating(a), floating(b))


def no_zeros(divisor: Tensor) -> Tensor:
    """The divisor of whole numbers, where it has no zeros. Raises ArgumentError."""
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
    quotient = ops.Div(a, no_zeros(b))  # truncates; one less where the signs differ and a remainder is left
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
        return ops.Mod(a, no_zeros(b))
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
    return pow(x, 2)


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


def where(condition: Any, a: Any = None, b: Any = None) -> Any:
    """`a` where `condition`, else `b`; they meet in one type. Without them the places where it holds, one tensor a
    dimension. `torch.where`, ONNX Where, NonZero."""
    if a is None and b is None:
        from ox.functions.picking import nonzero

        return nonzero(condition, as_tuple=True)
    if not hasattr(a, "node") and not hasattr(b, "node"):
        from ox.creation import as_tensor

        a = as_tensor(a)
    return ops.Where(cast(condition, bool_), *meet(a, b))


def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """`value`, a number, where `mask`, else `x`. `torch.masked_fill`.

    Raises:
        ShapeError: a value of several dimensions, or a mask that does not broadcast to `x`.
    """
    if hasattr(value, "node") and value.data.ndim:
        raise ShapeError("masked_fill fills with one number", where=users_line(2), got=str(list(value.data.shape)))
    return ops.Where(mask, cast(like(value, x), x.data.dtype), x)


absolute, negative, clip, subtract, multiply, divide = abs, neg, clamp, sub, mul, div
