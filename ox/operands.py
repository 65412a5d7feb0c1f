"""Where Python numbers and mixed types meet operators: constants and promotions, each promotion a recorded Cast."""

from __future__ import annotations

from math import copysign
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.dtypes import DType, float32, get_default_dtype, int64, is_floating, onnx_type, promote
from ox.errors import ArgumentError, DTypeError
from ox.mt19937.switch import torch_compatible
from ox.ops import operator
from ox.ops.dim import Dim, Quotient
from ox.ops.numeric import number
from ox.ops.operator import OPS
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor


def scalar(value: Any, dtype: DType) -> Tensor:
    """A tensor of no dimensions, made once for each value and type."""
    if isinstance(value, Dim):
        # a size stays computed: its own operators, cast and stripped of its one axis
        flat = OPS["Squeeze"](value.tensor, operator.as_input(np.zeros(1, np.int64)))
        return flat if dtype == int64 else OPS["Cast"](flat, to=onnx_type(dtype))
    if isinstance(value, Quotient) and is_floating(dtype):
        exact = dtype if dtype.itemsize >= 4 else float32
        divided = OPS["Div"](scalar(value.above, exact), scalar(value.below, exact))
        return divided if exact == dtype else OPS["Cast"](divided, to=onnx_type(dtype))
    if value == 0 and is_floating(dtype) and copysign(1, value) < 0:
        return operator.make_tensor(np.asarray(-0.0, dtype))
    try:
        return number(value, dtype)
    except (OverflowError, ValueError):
        counted = dtype.kind == "u" and hasattr(value, "__index__")  # from the end, as in PyTorch
        if counted and -np.iinfo(dtype).max <= value < 0:
            return number(value % (1 << 8 * dtype.itemsize), dtype)
        raise ArgumentError(
            f"{value} does not fit {dtype}", where=users_line(3), hint="a wider type first: x.long() or x.float()"
        ) from None


def scalar_type(value: Any, dtype: DType) -> DType:
    """The type in which a tensor of `dtype` meets a Python number: only a higher kind (bool < int < float) promotes."""
    if isinstance(value, (bool, np.bool_)) or is_floating(dtype):
        return dtype
    if isinstance(value, (int, np.integer)):
        return int64 if dtype == np.bool_ else dtype
    return get_default_dtype()


def kind_of(dtype: DType) -> int:
    """The kind of an element type: bools, whole numbers, floats."""
    return 2 if is_floating(dtype) else 0 if dtype == np.bool_ else 1


def meet(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Two operands of one element type, of which at least one is a tensor.

    Python numbers promote only across kinds (bool < int < float), and so do tensors of no dimensions that meet others,
    as in PyTorch. Raises DTypeError (a TypeError) for what is no number, array or tensor.
    """
    if not hasattr(a, "node"):
        if hasattr(b, "node"):
            second, first = meet(b, a)
            return first, second
        a = operator.as_input(a)
    if isinstance(b, (bool, int, float, np.generic)):
        target = scalar_type(b, a.array.dtype)
        return cast(a, target), scalar(b.item() if isinstance(b, np.generic) else b, target)
    if isinstance(b, np.ndarray):
        b = operator.as_input(b)
    if not hasattr(b, "node"):
        raise DTypeError(
            f"a tensor does not combine with a {type(b).__name__}",
            where=users_line(3),
            expected="a tensor, an array or a number",
            hint="ox.tensor(values) first",
        )
    target = common_type(a, b)
    return cast(a, target), cast(b, target)


def common_type(a: Tensor, b: Tensor) -> DType:
    """The type in which two tensors meet."""
    target: DType = a.array.dtype
    other: DType = b.array.dtype
    if target != other:
        flat = (not a.array.ndim) - (not b.array.ndim)  # 1: only a has no dimensions; -1: only b
        if flat and kind_of(target) == kind_of(other):
            target = other if flat > 0 else target
        elif flat > 0 and kind_of(other) > kind_of(target):
            target = other
        elif flat >= 0 or kind_of(other) > kind_of(target):
            target = promote(target, other)
    return target


def cast(x: Tensor, dtype: DType) -> Tensor:
    """`x` in another element type; `x` itself when it has it. Raises DTypeError for a type that ox does not have."""
    if x.array.dtype == dtype:
        return x
    try:
        return OPS["Cast"](x, to=onnx_type(dtype))
    except KeyError:
        raise no_such_type(dtype) from None


def no_such_type(dtype: Any) -> DTypeError:
    return DTypeError(
        f"ox has no element type '{dtype}'",
        where=users_line(3),
        expected="ox.float32, float64, float16, bfloat16, int8 to int64, uint8 to uint64 or bool",
    )


def by_rows(x: Any) -> Any:
    """`x` for an operator whose result PyTorch lays out by rows, whatever the layout of `x`. Where random numbers are
    PyTorch's, a dropout behind it must find it so; else `x` itself, as no value depends on it."""
    if not torch_compatible.on or x.array.flags.c_contiguous:
        return x
    return x.contiguous()
