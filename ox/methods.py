"""Tensor's operators and methods: PyTorch's names and niceties as compositions of ONNX operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox.operands import cast, meet
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor


def _binary(name: str, reflected: bool = False) -> Any:
    op = OPS[name]

    def method(self: Any, other: Any) -> Any:
        if type(self) is type(other) and self.data.dtype is other.data.dtype:
            return op(other, self) if reflected else op(self, other)
        try:
            a, b = meet(self, other)
        except TypeError:
            return NotImplemented
        return op(b, a) if reflected else op(a, b)

    method.__doc__ = op.__doc__
    return method


class Methods:
    """Mixed into `ox.Tensor`."""

    __add__ = _binary("Add")
    __radd__ = _binary("Add", reflected=True)
    __sub__ = _binary("Sub")
    __rsub__ = _binary("Sub", reflected=True)
    __mul__ = _binary("Mul")
    __rmul__ = _binary("Mul", reflected=True)

    def __neg__(self: Any) -> Tensor:
        return OPS["Neg"](self)
