"""Where Python numbers and mixed types meet operators: constants and promotions, each promotion a recorded Cast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce, wraps
from typing import Any, TypeVar
from typing import cast as typed

import numpy as np

from ox.core import operator
from ox.core.constants import scalar
from ox.core.mt19937.switch import torch_compatible
from ox.core.operator import OPS
from ox.core.tensor import TensorBase, TensorType, is_tensor
from ox.dtypes import HALF_TYPES, DType, float32, get_default_dtype, int64, is_floating, onnx_type, promote
from ox.errors import DTypeError


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


def promote_operands(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands of one element type, of which at least one is a tensor.

    Python numbers promote only across kinds (bool < int < float), and so do tensors of no dimensions that meet others,
    as in PyTorch. Raises DTypeError (a TypeError) for what is no number, array or tensor.
    """
    if not is_tensor(a):
        if is_tensor(b):
            second, first = promote_operands(b, a)
            return first, second
        a = operator.as_input(a)
    if isinstance(b, (bool, int, float, np.generic)):
        target = scalar_type(b, a.array.dtype)
        return cast(a, target), scalar(b.item() if isinstance(b, np.generic) else b, target)
    if isinstance(b, np.ndarray):
        b = operator.as_input(b)
    if not is_tensor(b):
        raise DTypeError(
            f"a tensor cannot be combined with {type(b).__name__}",
            expected="a tensor, an array or a number",
            hint="ox.tensor(values) first",
        )
    target = common_type(a, b)
    return cast(a, target), cast(b, target)


def common_type(a: TensorBase, b: TensorBase) -> DType:
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


def cast(x: TensorType, dtype: DType) -> TensorType:
    """`x` in another element type; `x` itself when it has it. Raises DTypeError for a type that ox does not have."""
    if x.array.dtype == dtype:
        return x
    try:
        return OPS["Cast"](x, to=onnx_type(dtype))
    except KeyError:
        raise no_such_type(dtype) from None


F = TypeVar("F", bound=Callable[..., Any])


def upcast_half(function: F) -> F:
    """Give a function of several operators float32 where its tensors are float16 or bfloat16, and round its result.

    A square of more than 256 is infinite in float16, one of less than 0.0002 is 0; PyTorch computes in float32 as well
    (its `opmath`). Tensors of another floating type decide by themselves, as they do for a single operator.

    A function that `reading_halves` stands below gets halves as they are where its kernels read them.
    """
    own = getattr(function, "of_halves", None)

    @wraps(function)
    def wide(*args: Any, **kwargs: Any) -> Any:
        kinds = [x.array.dtype for x in _deciding([*args, *kwargs.values()])]
        if not kinds or kwargs.get("out") is not None or not all(kind in HALF_TYPES for kind in kinds):
            return function(*args, **kwargs)
        result = None if own is None else own(*args, **kwargs)
        if result is not None:
            return _in_type(result, (float32,), reduce(promote, kinds))
        result = function(
            *[_in_type(x, HALF_TYPES, float32) for x in args],
            **{name: _in_type(x, HALF_TYPES, float32) for name, x in kwargs.items()},
        )
        return _in_type(result, (float32,), reduce(promote, kinds))

    return typed(F, wide)


def reading_halves(of_halves: Callable[..., Any]) -> Callable[[F], F]:
    """Declare how a function below `upcast_half` reads halves without conversions.

    Args:
        of_halves: takes the function's arguments and gives its result in float32; None for what it does not read.
    """

    def declare(function: F) -> F:
        function.of_halves = of_halves  # type: ignore[attr-defined]
        return function

    return declare


def _deciding(values: list[Any]) -> list[Any]:
    """The tensors of floats that decide on a result's type: those of no dimensions only where there is no other."""
    floats = [x for x in _tensors(values) if is_floating(x.array.dtype)]
    return [x for x in floats if x.array.ndim] or floats


def _tensors(values: Any) -> Iterator[Any]:
    for x in values:
        if is_tensor(x):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from _tensors(x)


def _in_type(value: Any, kinds: tuple[DType, ...], dtype: DType) -> Any:
    """A tensor of one of these types, or those in a list or tuple, in another type."""
    if is_tensor(value):
        return cast(value, dtype) if value.array.dtype in kinds else value
    if isinstance(value, (list, tuple)):
        parts = [_in_type(x, kinds, dtype) for x in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def no_such_type(dtype: Any) -> DTypeError:
    return DTypeError(
        f"ox has no element type '{dtype}'",
        expected="ox.float32, float64, float16, bfloat16, int8 to int64, uint8 to uint64 or bool",
    )


def row_major(x: Any) -> Any:
    """`x` for an operator whose result PyTorch lays out by rows, whatever the layout of `x`. Where random numbers are
    PyTorch's, a dropout behind it must find it so; else `x` itself, as no value depends on it."""
    if not torch_compatible.on or x.array.flags.c_contiguous:
        return x
    return x.contiguous()
