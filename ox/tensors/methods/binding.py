"""How a function becomes a method of Tensor: as it is, behind an infix sign, or written in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import functions as F
from ox.core.operator import OPS, Operator
from ox.core.promotion import cast, promote_operands
from ox.core.tensor import is_tensor
from ox.dtypes import bool_, is_floating
from ox.errors import DTypeError
from ox.functions.zero_gradients import with_zero_gradient

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


def binary(
    name: str,
    *,
    reflected: bool = False,
    on_bools: str | None = None,
    numbers: bool = False,
    operands: Any = promote_operands,
) -> Any:
    """The method of an operator, and for two bools a function, as ONNX does not add, multiply or order them; with
    `numbers` bools are refused beside numbers, too."""
    op: Operator = OPS[name]

    def method(self: Any, other: Any) -> Any:
        if type(self) is type(other) and self.array.dtype is other.array.dtype:
            a, b = self, other
        else:
            if numbers and (_of_bools(self) or _of_bools(other)):
                raise DTypeError("bools are not subtracted", hint="~mask, a ^ b, or mask.int()")
            try:
                a, b = operands(self, other)
            except TypeError:
                return NotImplemented
        try:
            return op(b, a) if reflected else op(a, b)
        except DTypeError:
            if on_bools is None or a.array.dtype != bool_:
                raise
            return getattr(F, on_bools)(a, b)

    method.__doc__ = op.__doc__
    return method


def _of_bools(x: Any) -> bool:
    return isinstance(x, bool) or getattr(getattr(x, "array", x), "dtype", None) == bool_


def infix(name: str, *, reflected: bool = False) -> Any:
    """The function `name` behind an infix sign: what it cannot take Python offers to the other side."""
    works = getattr(F, name)

    def method(self: Any, other: Any) -> Any:
        if not is_tensor(other) and not isinstance(other, (bool, int, float, np.generic, np.ndarray)):
            return NotImplemented
        return works(F.like(other, self), self) if reflected else works(self, other)

    method.__doc__ = works.__doc__
    return method


def function(name: str) -> Any:
    """The function of `ox.functions` as a method."""
    return getattr(F, name)


def in_place(name: str) -> Any:
    """The method `name` followed by a write into this tensor; `torch.Tensor.<name>_`."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        result = getattr(self, name)(*args, **kwargs)
        if result is NotImplemented:
            return result
        have, came = self.array.dtype, result.array.dtype
        if have != came and ((not is_floating(have) and is_floating(came)) or have == bool_):
            raise DTypeError(
                f"{name}_ gives {came}, which does not go into {have} in place",
                hint="the out-of-place form, which makes a new tensor",
            )
        if came == bool_ and is_floating(have) and not name.startswith("logical"):  # which PyTorch gives no gradient
            result = with_zero_gradient(cast(result, have), self, *args)
        return self.assign(result, f"{name}_")

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = (
        f"`{name}` in place; the version counts up. Raises GradientError where a gradient needs the old value."
    )
    return method
