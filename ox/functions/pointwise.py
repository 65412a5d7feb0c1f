"""Functions that work element by element, and the matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.dtypes import bool_, get_default_dtype, is_floating
from ox.operands import cast, meet, scalar, scalar_type
from ox.ops import operator
from ox.ops.dim import Dim

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


neg, abs, relu = _unary(ops.Neg), _unary(ops.Abs), _unary(ops.Relu)
sqrt, reciprocal, exp, log = map(_unary_float, (ops.Sqrt, ops.Reciprocal, ops.Exp, ops.Log))
erf, tanh, sigmoid = map(_unary_float, (ops.Erf, ops.Tanh, ops.Sigmoid))


def rsqrt(x: Any) -> Tensor:
    """1 / sqrt(x)."""
    return ops.Reciprocal(ops.Sqrt(_floating(x)))


def add(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    """a + alpha·b."""
    return a + b if alpha == 1 else a + b * alpha  # type: ignore[no-any-return]


def sub(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    """a - alpha·b."""
    return a - b if alpha == 1 else a - b * alpha  # type: ignore[no-any-return]


def mul(a: Any, b: Any) -> Tensor:
    """Product element by element."""
    return a * b  # type: ignore[no-any-return]


def div(a: Any, b: Any) -> Tensor:
    """True division: integers become the default float type first. `torch.div`."""
    a, b = meet(a, b)
    return ops.Div(_floating(a), _floating(b))


def floor_divide(a: Any, b: Any) -> Tensor:
    """Division rounded towards minus infinity. `torch.floor_divide`."""
    a, b = meet(a, b)
    if is_floating(a.data.dtype):
        return ops.Floor(ops.Div(a, b))
    quotient = ops.Div(a, b)  # truncates; one less where the signs differ and a remainder is left
    product = ops.Mul(quotient, b)
    zero = scalar(0, a.data.dtype)
    below = ops.And(ne(product, a), ne(ops.Less(a, zero), ops.Less(b, zero)))
    return ops.Sub(quotient, cast(below, a.data.dtype))


def remainder(a: Any, b: Any) -> Tensor:
    """What `floor_divide` leaves; takes the sign of the divisor. `torch.remainder`."""
    a, b = meet(a, b)
    return ops.Sub(a, ops.Mul(floor_divide(a, b), b))


def pow(a: Any, b: Any) -> Tensor:
    """a to the power b. `torch.pow`."""
    if isinstance(b, (int, float)) and not isinstance(b, Dim):
        if b == 2:
            return ops.Mul(a, a)
        return ops.Pow(_floating(a) if isinstance(b, float) else a, scalar(b, scalar_type(b, a.data.dtype)))
    return ops.Pow(*meet(a, b))


def square(x: Any) -> Tensor:
    """x·x."""
    return ops.Mul(x, x)


def matmul(a: Any, b: Any) -> Tensor:
    """Matrix product of the last two dimensions, the others broadcast. `torch.matmul`, ONNX MatMul."""
    return ops.MatMul(a, like(b, a))


def maximum(a: Any, b: Any) -> Tensor:
    """The larger of two, element by element."""
    return ops.Max(*meet(a, b))


def minimum(a: Any, b: Any) -> Tensor:
    """The smaller of two, element by element."""
    return ops.Min(*meet(a, b))


def clamp(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """Limit to [min, max]; either may be None. `torch.clamp`."""
    bounds = [None if b is None else cast(like(b, x), x.data.dtype) for b in (min, max)]
    return ops.Clip(x, *bounds)


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """`a` where `condition`, else `b`. `torch.where`, ONNX Where."""
    if not hasattr(a, "node"):
        a = like(a, b) if hasattr(b, "node") else operator.as_input(np.asarray(a, get_default_dtype()))
    return ops.Where(cast(condition, bool_), *meet(a, b))


def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """`value` where `mask`, else `x`."""
    return ops.Where(mask, cast(like(value, x), x.data.dtype), x)


def ne(a: Any, b: Any) -> Tensor:
    """Not equal, element by element."""
    return ops.Not(ops.Equal(*meet(a, b)))


def logical_not(x: Any) -> Tensor:
    return ops.Not(cast(x, bool_))


def logical_and(a: Any, b: Any) -> Tensor:
    return ops.And(cast(a, bool_), cast(like(b, a), bool_))


def logical_or(a: Any, b: Any) -> Tensor:
    return ops.Or(cast(a, bool_), cast(like(b, a), bool_))


def isnan(x: Any) -> Tensor:
    """True where NaN (the only value that differs from itself)."""
    return ops.Not(ops.Equal(x, x))


def isinf(x: Any) -> Tensor:
    """True where infinite."""
    return ops.Equal(ops.Abs(x), scalar(np.inf, x.data.dtype))


def isfinite(x: Any) -> Tensor:
    """True where neither infinite nor NaN."""
    return ops.Less(ops.Abs(x), scalar(np.inf, x.data.dtype))
