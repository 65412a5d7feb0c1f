"""Tensors the older way: `torch.Tensor(2, 3)`, `torch.LongTensor([1, 2])`, `x.type("torch.FloatTensor")`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.core import operator
from ox.core.device import device as Device
from ox.core.size import Size
from ox.core.symbolic import Dim
from ox.core.tensor import is_tensor
from ox.dtypes import DType, bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from ox.errors import ArgumentError, DTypeError
from ox.functions.creation import as_array


def typed_array(data: tuple[Any, ...], dtype: DType) -> Any:
    """The array of `Tensor(*data)`: sizes, of which the values are not to be relied on, or values of a type.

    A tensor keeps its own type, as in PyTorch.

    Raises:
        ArgumentError: a number with a fraction, which is neither a size nor a sequence.
    """
    if len(data) == 1 and isinstance(data[0], Size):
        data = tuple(data[0])
    if all(type(d) in (int, Dim) or isinstance(d, np.integer) for d in data):
        return np.zeros([int(d) for d in data] or 0, dtype)
    if len(data) > 1 or type(data[0]) in (float, bool):
        raise ArgumentError(
            "a typed tensor is made of sizes or of a sequence", got=", ".join(map(repr, data)),
            hint="ox.tensor(2.5) for a number",
        )  # fmt: skip
    return as_array(data[0], None if is_tensor(data[0]) else dtype)


class Typed(type):
    """The class of `FloatTensor` and its like, which are no classes of their own: `isinstance` looks at the type."""

    dtype: DType
    kind: str

    def __call__(cls, *data: Any) -> Any:
        array = typed_array(data, cls.dtype)
        if array.dtype != cls.dtype:
            raise DTypeError(
                f"{cls.__name__} takes no tensor of another type", expected=str(cls.dtype),
                got=str(array.dtype), hint="x.to(dtype)",
            )  # fmt: skip
        made = operator.make_tensor(array)
        return made if cls.kind == "cpu" else made.to(cls.kind)

    def __instancecheck__(cls, thing: Any) -> bool:
        return is_tensor(thing) and thing.dtype == cls.dtype and thing.device.type == cls.kind


NAMES: dict[str, DType] = {
    "FloatTensor": float32, "DoubleTensor": float64, "HalfTensor": float16, "BFloat16Tensor": bfloat16,
    "ByteTensor": uint8, "CharTensor": int8, "ShortTensor": int16, "IntTensor": int32, "LongTensor": int64,
    "BoolTensor": bool_,
}  # fmt: skip


def _type_classes(kind: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, dtype in NAMES.items():
        doc = f"Values or sizes as {dtype} on {kind}; `isinstance` of it asks a tensor's type. `torch.{name}`."
        made[name] = Typed(name, (), {"dtype": dtype, "kind": kind, "__doc__": doc, "__module__": __name__})
    return made


CPU, CUDA = _type_classes("cpu"), _type_classes("cuda")
globals().update(CPU)


def name_of(dtype: DType, device: Device) -> str:
    """``torch.FloatTensor``, or ``torch.cuda.FloatTensor``: PyTorch's name of a type on a device."""
    name = next(name for name, known in NAMES.items() if known == dtype)
    return f"torch.{'cuda.' if device.type == 'cuda' else ''}{name}"


def named(text: str) -> Any:
    """The typed class of such a name. Raises ArgumentError for another."""
    *path, name = text.split(".")
    if name not in CPU or path not in (["torch"], ["ox"], ["torch", "cuda"], ["ox", "cuda"]):
        raise ArgumentError(
            f"'{text}' is no type of tensor", expected="'torch.FloatTensor' and its like",
            hint="x.to(ox.float32)",
        )  # fmt: skip
    return (CUDA if path[1:] else CPU)[name]
