"""Constant tensors for gradient rules, function bodies and compositions.

`number`, `constant`, `scalar`, `ints` and `full` return shared, read-only tensors; the others return new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from math import copysign
from typing import Any

import ml_dtypes
import numpy as np

from ox.core import operator
from ox.core.constant_sizes import ints as ints
from ox.core.device import CPU
from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.core.symbolic import Dim, Quotient, Root, size_tensor
from ox.core.tensor import TensorBase, TensorType
from ox.devices import cuda
from ox.dtypes import DType, float32, int64, is_floating, onnx_type
from ox.errors import ArgumentError

_constants: dict[tuple[Any, DType], TensorBase] = {}


def number(value: Any, dtype: DType) -> Any:
    """A number as a tensor of no dimensions, made once for each type."""
    if not value and isinstance(value, float | np.floating) and copysign(1, value) < 0:
        return operator.make_tensor(np.asarray(value, dtype))  # a dictionary takes -0.0 for 0
    try:
        return _constants[value, dtype]
    except KeyError:
        with np.errstate(all="ignore"):  # what is too large for a float is infinite
            array = np.asarray(value, dtype)
        made = operator.make_tensor(array)
        if value == value:  # NaN would never be found again
            if len(_constants) >= 4096:  # numbers that change at every step fill it
                _constants.clear()
            array.flags.writeable = False
            _constants[value, dtype] = made
        return made


def constant(value: float, like: TensorType) -> TensorType:
    """The same in the type of `like`."""
    return number(value, like.array.dtype)


def scalar(value: Any, dtype: DType) -> Any:
    """A tensor of no dimensions, made once for each value and type."""
    if isinstance(value, Dim):
        # a size stays computed: its own operators, cast and stripped of its one axis
        flat = OPS["Squeeze"](value.tensor, operator.as_input(np.zeros(1, np.int64)))
        return flat if dtype == int64 else OPS["Cast"](flat, to=onnx_type(dtype))
    if isinstance(value, Quotient) and is_floating(dtype):
        exact = dtype if dtype.itemsize >= 4 else float32
        divided = OPS["Div"](scalar(value.above, exact), scalar(value.below, exact))
        return divided if exact == dtype else OPS["Cast"](divided, to=onnx_type(dtype))
    if isinstance(value, Root) and is_floating(dtype):
        exact = dtype if dtype.itemsize >= 4 else float32
        power = OPS["Pow"](scalar(value.size, exact), number(value.exponent, exact))
        power = power if value.factor == 1 else OPS["Mul"](power, number(value.factor, exact))
        return power if exact == dtype else OPS["Cast"](power, to=onnx_type(dtype))
    try:
        return number(value, dtype)
    except (OverflowError, ValueError):
        counted = dtype.kind == "u" and hasattr(value, "__index__")  # from the end, as in PyTorch
        if counted and -np.iinfo(dtype).max <= value < 0:
            return number(value % (1 << 8 * dtype.itemsize), dtype)
        raise ArgumentError(f"{value} does not fit {dtype}", hint="a wider type first: x.long() or x.float()") from None


@cache
def _largest(dtype: DType) -> float:
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]


def stored(value: Any, dtype: DType, *, infinite_halves: bool = False) -> Any:
    """`scalar` of a number that is to be written into a tensor: what the type does not hold is an error, as in PyTorch.

    Args:
        infinite_halves: give infinity for what is too large for float16 or bfloat16, as some of PyTorch's functions do.

    Raises:
        ArgumentError: a finite number beyond the largest one, or NaN or infinity in integers.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    if type(plain) in (int, float):  # no size, which is computed, and no bool
        if is_floating(dtype):
            fits = abs(plain) <= _largest(dtype) or plain != plain or abs(plain) == np.inf
            fits |= infinite_halves and dtype.itemsize == 2
            limits = f"{-_largest(dtype):g} to {_largest(dtype):g}"
        elif dtype.kind in "iu" and type(plain) is float:
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            fits, limits = low <= plain <= high, f"{low} to {high}"
        else:
            fits, limits = True, ""  # `scalar` looks at whole numbers
        if not fits:
            raise ArgumentError(
                f"{value} does not fit {dtype}", expected=limits, got=str(value), hint="a wider type first: x.float()"
            )
    return scalar(value, dtype)


def scalar_like(value: Any, like: TensorType) -> TensorType:
    """A tensor of no dimensions of the element type of `like`; a size that is an `ox.Dim` stays computed."""
    return scalar(value, like.array.dtype)


def integer(value: int) -> Any:
    """A whole number: int64 of no dimensions."""
    return operator.as_input(np.asarray(value, np.int64))


def size_like(n: int, like: TensorBase) -> Any:
    """A size as a number of the type of `like`."""
    if isinstance(n, Dim):
        return OPS["Squeeze"](OPS["Cast"](n.tensor, to=onnx_type(like.dtype)), axes_tensor([0]))
    return constant(n, like)


def axes_tensor(axes: Sequence[int]) -> Any:
    """int64 [n], for the operators that take axes as an input."""
    return operator.as_input(np.array(axes, np.int64))


def positions(n: int) -> Any:
    """int64 0, 1, ..., n - 1, for an n that may be an `ox.Dim`."""
    end = OPS["Squeeze"](size_tensor([n]), axes_tensor([0]))
    return OPS["Range"](number(0, int64), end, number(1, int64))


@lru_cache(maxsize=256)
def full(value: float, size: int, dtype: DType, device: str = "cpu") -> Any:
    """[size] of one value, where an operator wants a tensor that the caller left out. Shared, so read-only."""
    array = np.full(size, value, dtype)
    if device != "cpu":
        return operator.as_input(cuda.to_device(array, device))
    array.flags.writeable = False
    return operator.as_input(array)


def zeros(shape: Sequence[int], like: TensorBase) -> Any:
    """Zeros of a shape whose sizes may be `ox.Dim`, in the type and on the device of `like`."""
    return _filled(OPS["ConstantOfShape"](size_tensor(shape), value=np.zeros(1, like.array.dtype)), 0, like)


def ones(shape: Sequence[int], like: TensorType) -> TensorType:
    """Ones of a shape that may hold `ox.Dim`, of the type and on the device of `like`."""
    return _filled(OPS["Expand"](constant(1, like), size_tensor(shape)), 1, like)


def _filled(made: TensorType, value: int, like: TensorBase) -> TensorType:
    """A tensor of one number just made in host memory, made again on the device of `like`."""
    if not isinstance(like.array, np.ndarray) and isinstance(made.array, np.ndarray):
        made.array = cuda.full(made.array.shape, value, made.array.dtype, like.device)
    return made


def is_made_on_gpu(device: Any) -> bool:
    """Whether a tensor that is asked for on this device is made there: not in a recording, whose operators make it."""
    if device is None or device is CPU:
        return False
    return str(device).startswith("cuda") and MODE.get().recording is None


def on_device_of(made: TensorType, like: TensorBase) -> TensorType:
    """A tensor just made from sizes alone, which lie in host memory, brought to the device of `like`."""
    if not isinstance(like.array, np.ndarray) and isinstance(made.array, np.ndarray):
        made.array = cuda.to_device(made.array, like.device)
    return made
