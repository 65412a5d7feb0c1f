"""Questions about element types and tensors: what meets in what, which numbers fit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ox.core import operator
from ox.core.promotion import common_type, kind_of, no_such_type, scalar_type
from ox.core.tensor import is_tensor as is_dense
from ox.dtypes import DType, get_default_dtype, int64, is_floating, promote
from ox.errors import ArgumentError, DTypeError

__all__ = [
    "can_cast", "finfo", "iinfo", "is_complex", "is_floating_point", "is_nonzero", "is_tensor", "numel",
    "promote_types", "result_type",
]  # fmt: skip


def is_tensor(obj: Any) -> bool:
    """Whether it is an `ox.Tensor`, or a sparse one. `torch.is_tensor`."""
    return isinstance(obj, operator.tensor_class) or getattr(obj, "is_sparse", False)


def is_floating_point(input: Any) -> bool:
    """Whether the elements are floats. `torch.is_floating_point`."""
    return is_floating(input.array.dtype) and not is_complex(input)


def is_complex(input: Any) -> bool:
    """Whether it represents complex numbers, as results of `ox.fft` do. `torch.is_complex`."""
    return isinstance(input, operator.tensor_class) and input.is_complex()


def is_nonzero(input: Any) -> bool:
    """Whether its one element is not 0. `torch.is_nonzero`. Raises ArgumentError for more than one."""
    if input.array.size != 1:
        raise ArgumentError("is_nonzero needs a tensor of one element", got=str(input.static_shape))
    return bool(input)


def numel(input: Any) -> int:
    """How many elements. `torch.numel`."""
    return input.numel()


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest type that holds both. `torch.promote_types`."""
    return promote(_type(type1), _type(type2))


def result_type(tensor: Any, other: Any) -> DType:
    """The type in which two tensors or numbers meet. `torch.result_type`."""
    a, b = (x if is_dense(x) else None for x in (tensor, other))
    if a is not None and b is not None:
        return common_type(a, b)
    if a is None and b is None:
        return promote(_of_number(tensor), _of_number(other))
    return scalar_type(other, a.array.dtype) if a is not None else scalar_type(tensor, b.array.dtype)  # type: ignore[union-attr]


def _of_number(value: Any) -> DType:
    if isinstance(value, bool):
        return np.dtype(np.bool_)
    return int64 if isinstance(value, int) else get_default_dtype()


def can_cast(from_: DType, to: DType) -> bool:
    """Whether the kind of type allows it: bools go into all, whole numbers not into bools, floats only into floats.
    `torch.can_cast`."""
    return kind_of(_type(from_)) <= kind_of(_type(to))


def _type(dtype: Any) -> DType:
    try:
        return np.dtype(dtype)
    except TypeError:
        raise no_such_type(dtype) from None


class finfo:
    """What a floating type holds: bits, eps, max, min, tiny, smallest_normal, resolution. `torch.finfo`.

    Raises:
        DTypeError: a type that is not floating.
    """

    def __init__(self, dtype: Any = None) -> None:
        kind = get_default_dtype() if dtype is None else _type(dtype)
        if not is_floating(kind):
            raise DTypeError("finfo is for floats", got=str(kind), hint="ox.iinfo")
        info = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
        self.dtype = str(kind)
        self.bits: int = kind.itemsize * 8
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(info.resolution)

    def __repr__(self) -> str:
        shown = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{name}={getattr(self, name):g}' for name in shown)}, dtype={self.dtype})"


class iinfo:
    """What an integer type holds: bits, max, min. `torch.iinfo`.

    Raises:
        DTypeError: a type that is not one of integers.
    """

    def __init__(self, dtype: Any) -> None:
        kind = _type(dtype)
        if kind.kind not in "iu":
            raise DTypeError("iinfo is for integers", got=str(kind), hint="ox.finfo")
        info = np.iinfo(kind)
        self.dtype, self.bits = str(kind), kind.itemsize * 8
        self.max, self.min = int(info.max), int(info.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
