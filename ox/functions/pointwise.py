"""Arithmetic element by element, and the matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.amp.policy import by_policy
from ox.core.constants import scalar
from ox.core.promotion import cast, promote_operands, scalar_type
from ox.core.symbolic import Dim
from ox.core.tensor import is_tensor
from ox.dtypes import UNSIGNED, bool_, int32, int64, is_floating, uint8
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.functions.comparison import ne
from ox.functions.operand_arguments import floating, like, stored_like, unary, unary_float
from ox.functions.out_argument import write
from ox.functions.zero_gradients import with_zero_gradient

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "abs", "absolute", "add", "clamp", "clip", "div", "divide", "floor_divide", "masked_fill", "matmul", "maximum",
    "minimum", "mul", "multiply", "neg", "negative", "pow", "reciprocal", "relu", "remainder", "sign", "square", "sub",
    "subtract", "where",
]  # fmt: skip

abs = unary(ops.Abs)
reciprocal = unary_float(ops.Reciprocal)


def neg(input: Any, *, out: Any = None) -> Tensor:
    """-input; of unsigned numbers around the end of their type. `torch.neg`, ONNX Neg."""
    if out is not None:
        return write(neg(input), out, "neg")
    dtype = input.array.dtype
    return ops.Sub(scalar(0, dtype), input) if dtype in UNSIGNED else ops.Neg(input)


def relu(input: Any) -> Tensor:
    """max(input, 0). `torch.relu`, ONNX Relu."""
    return ops.Identity(input) if input.array.dtype in UNSIGNED else ops.Relu(input)


def sign(input: Any, *, out: Any = None) -> Tensor:
    """-1, 0 or 1; 0 of NaN. `torch.sign`, ONNX Sign, which leaves NaN."""
    if out is not None:
        return write(sign(input), out, "sign")
    dtype = input.array.dtype
    if dtype == bool_:
        return ops.Identity(input)
    if not is_floating(dtype):
        return ops.Sign(input)
    return ops.Where(ops.IsNaN(input), scalar(0, dtype), ops.Sign(input))


def add(input: Any, other: Any, *, alpha: float = 1, out: Any = None) -> Tensor:
    """input + alpha · other. `torch.add`."""
    if out is not None:
        return write(add(input, other, alpha=alpha), out, "add")
    return input + other if alpha == 1 else input + other * alpha


def sub(input: Any, other: Any, *, alpha: float = 1, out: Any = None) -> Tensor:
    """input - alpha · other. `torch.sub`."""
    if out is not None:
        return write(sub(input, other, alpha=alpha), out, "sub")
    return input - other if alpha == 1 else input - other * alpha


def mul(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """Product element by element. `torch.mul`."""
    if out is not None:
        return write(mul(input, other), out, "mul")
    return input * other


def _rounding(op: Any, mode: str | None) -> ArgumentError:
    return ArgumentError(f"{op} has no rounding_mode {mode!r}", expected="None, 'floor' or 'trunc'")


def div(input: Any, other: Any, *, rounding_mode: str | None = None, out: Any = None) -> Tensor:
    """True division: integers become the default float type first. `torch.div`.

    Args:
        rounding_mode: "floor" as `floor_divide`, "trunc" towards zero.

    Raises:
        ArgumentError: integers divided by zero with a rounding mode, or another mode.
    """
    if out is not None:
        return write(div(input, other, rounding_mode=rounding_mode), out, "div")
    if rounding_mode == "floor":
        return floor_divide(input, other)
    input, other = promote_operands(input, other)
    if rounding_mode == "trunc":
        if is_floating(input.array.dtype):
            quotient = ops.Div(input.detach(), other.detach())
            down = ops.Less(quotient, scalar(0, quotient.array.dtype))
            return with_zero_gradient(ops.Where(down, ops.Ceil(quotient), ops.Floor(quotient)), input, other)
        return ops.Div(input, no_zeros(other))
    if rounding_mode is not None:
        raise _rounding("div", rounding_mode)
    return ops.Div(floating(input), floating(other))


def no_zeros(divisor: Tensor) -> Tensor:
    """The divisor of whole numbers, where it has no zeros. Raises ArgumentError."""
    if isinstance(divisor.array, np.ndarray) and not divisor.array.all():
        raise ArgumentError("integers are not divided by zero", hint="x.float() first, which gives infinities")
    return divisor


def floor_divide(input: Any, other: Any) -> Tensor:
    """Division rounded towards minus infinity. `torch.floor_divide`.

    Raises:
        ArgumentError: integers divided by zero.
    """
    input, other = promote_operands(input, other)
    zero = scalar(0, input.array.dtype)
    if is_floating(input.array.dtype):
        # from the exact remainder, as in Python: 1 // 0.1 is 9 though 1 / 0.1 rounds to 10; flat, so no gradient
        a, b = input.detach(), other.detach()
        whole = ops.Div(ops.Sub(a, remainder(a, b)), b)
        rounded = ops.Floor(ops.Add(whole, scalar(0.5, input.array.dtype)))
        return with_zero_gradient(ops.Where(ops.Equal(b, zero), ops.Div(a, b), rounded), input, other)
    quotient = ops.Div(input, no_zeros(other))  # truncates; one less where the signs differ and a remainder is left
    product = ops.Mul(quotient, other)
    below = ops.And(ne(product, input), ne(ops.Less(input, zero), ops.Less(other, zero)))
    return ops.Sub(quotient, cast(below, input.array.dtype))


def remainder(input: Any, other: Any) -> Tensor:
    """What `floor_divide` leaves; takes the sign of the divisor. `torch.remainder`.

    Raises:
        ArgumentError: integers divided by zero.
    """
    input, other = promote_operands(input, other)
    if not is_floating(input.array.dtype):
        return ops.Mod(input, no_zeros(other))
    left = ops.Mod(input, other, fmod=1)  # of the sign of the input
    zero = scalar(0, input.array.dtype)
    unlike = ops.And(ne(left, zero), ne(ops.Less(left, zero), ops.Less(other, zero)))
    return ops.Where(unlike, ops.Add(left, other), left)


@by_policy
def pow(input: Any, exponent: Any, *, out: Any = None) -> Tensor:
    """input to the power of the exponent. `torch.pow`.

    Raises:
        ArgumentError: integers to a negative number.
    """
    if out is not None:
        return write(pow(input, exponent), out, "pow")
    whole = isinstance(exponent, (int, np.integer)) and not isinstance(exponent, Dim)
    given = whole and is_tensor(input)
    if (whole or isinstance(exponent, (float, np.floating))) and is_tensor(input):
        dtype = input.array.dtype
        if dtype == bool_ or not (whole or is_floating(dtype)):
            input = cast(input, scalar_type(exponent, int64 if whole else dtype))
        if exponent == 2:
            return ops.Mul(input, input)
        if exponent < 0 and not is_floating(input.array.dtype):
            raise ArgumentError(
                "integers have no negative powers among the integers",
                got=f"{input.array.dtype} ** {exponent}",
                hint="x.float() first, or a float exponent",
            )
        exponent = scalar(exponent, input.array.dtype)
    else:
        input, exponent = promote_operands(input, exponent)
    dtype = input.array.dtype
    if is_floating(dtype):
        return ops.Pow(input, exponent)
    # ONNX has no powers of the small integers
    wide = dtype not in _POWERS
    powers = ops.Pow(cast(input, int64), cast(exponent, int64)) if wide else ops.Pow(input, exponent)
    powers = cast(powers, dtype)
    if given or dtype in UNSIGNED:
        return powers
    # 1/0, which ONNX leaves open, is 0 as other fractions are
    zero = scalar(0, dtype)
    return ops.Where(ops.And(ops.Equal(input, zero), ops.Less(exponent, zero)), zero, powers)


_POWERS = (np.dtype(np.int32), int64)


def square(input: Any, *, out: Any = None) -> Tensor:
    """input · input. `torch.square`."""
    if out is not None:
        return write(square(input), out, "square")
    return pow(input, 2)


def sparse_product(input: Any, other: Any, error: Exception) -> Any:
    """The product where one of two is a sparse matrix; otherwise the error, for something that is no tensor at all.

    Asked only where the other way has failed, so that products of ordinary tensors pay nothing."""
    if getattr(input, "is_sparse", False) or getattr(other, "is_sparse", False):
        return input @ other
    raise error


def matmul(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """Matrix product of the last two dimensions, the others broadcast. `torch.matmul`, ONNX MatMul."""
    if out is not None:
        return write(matmul(input, other), out, "matmul")
    try:
        other = like(other, input)
        dtype = input.array.dtype
    except (AttributeError, TypeError) as error:
        return sparse_product(input, other, error)
    if dtype.itemsize < 4 and dtype.kind in "iu" and other.array.dtype == dtype:  # ONNX multiplies wider ones only
        return cast(ops.MatMul(cast(input, int32), cast(other, int32)), dtype)
    return ops.MatMul(input, other)


def _extreme(op: Any, on_bools: Any) -> Any:
    def function(input: Any, other: Any, *, out: Any = None) -> Tensor:
        if out is not None:
            return write(function(input, other), out, function.__name__)
        input, other = promote_operands(input, other)
        return on_bools(input, other) if input.array.dtype == bool_ else op(input, other)

    which = op.name.lower()
    size = "larger" if which == "max" else "smaller"
    function.__doc__ = f"The {size} of two, element by element. `torch.{which}imum`."
    function.__name__ = function.__qualname__ = f"{which}imum"
    return function


maximum, minimum = _extreme(ops.Max, ops.Or), _extreme(ops.Min, ops.And)


def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """Limit to [min, max]; either may be None; tensors are broadcast. `torch.clamp`, ONNX Clip.

    Raises:
        ArgumentError: neither bound is given.
    """
    if min is None and max is None:
        raise ArgumentError("clamp needs min, max or both")
    bounds = [None if b is None else promote_operands(input, b)[1] for b in (min, max)]
    for bound in bounds:
        if bound is not None:
            input = promote_operands(input, bound)[0]
    low, high = [
        b if b is None else cast(b, input.array.dtype) if is_tensor(given) else stored_like(given, input)
        for b, given in zip(bounds, (min, max), strict=True)
    ]
    if are_clip_bounds(low, high):
        return ops.Clip(input, low, high)
    if all(x is None or x.node is None for x in (input, low, high)):
        input = input if low is None else maximum(input, low)
        return input if high is None else minimum(input, high)
    # on a bound the whole gradient is the input's, where Max and Min would share it
    if low is not None:
        input = ops.Where(ops.Or(ops.Less(input, low), ops.IsNaN(low)), low, input)
    if high is not None:
        input = ops.Where(ops.Or(ops.Less(high, input), ops.IsNaN(high)), high, input)
    return input


def are_clip_bounds(*bounds: Any) -> bool:
    """Whether Clip takes these: single numbers through which no gradient passes."""
    return not [b for b in bounds if b is not None and (b.array.ndim or b.node is not None)]


def where(condition: Any, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    """`input` where `condition`, else `other`; they meet in one type. Without them the places where it holds, one
    tensor a dimension. `torch.where`, ONNX Where, NonZero.

    Raises:
        DTypeError: a condition of numbers (uint8, the bools of old, is taken).
    """
    if out is not None:
        return write(where(condition, input, other), out, "where")
    if input is None and other is None:
        from ox.functions.gather_select import nonzero

        return nonzero(condition, as_tuple=True)
    if not is_tensor(input) and not is_tensor(other):
        from ox.functions.creation import as_tensor

        input = as_tensor(input)
    if condition.array.dtype not in (bool_, uint8):
        raise DTypeError("where's condition is of bools", got=str(condition.array.dtype), hint="condition != 0")
    return ops.Where(cast(condition, bool_), *promote_operands(input, other))


def masked_fill(input: Any, mask: Any, value: Any) -> Tensor:
    """`value`, a number, where `mask`, else `input`. `torch.masked_fill`.

    Raises:
        ShapeError: a value of several dimensions, or a mask that does not broadcast to `input`.
    """
    if is_tensor(value) and value.array.ndim:
        raise ShapeError("masked_fill fills with one number", got=str(list(value.static_shape)))
    return ops.Where(mask, stored_like(value, input), input)


absolute, negative, clip, subtract, multiply, divide = abs, neg, clamp, sub, mul, div
