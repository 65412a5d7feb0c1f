"""What a function takes: tensors, numbers beside them, and floats where whole numbers were given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox.amp.policy import by_policy
from ox.core import operator
from ox.core.constants import scalar, stored
from ox.core.promotion import cast, scalar_type
from ox.core.symbolic import COMPUTED
from ox.core.tensor import is_tensor
from ox.dtypes import HALF_TYPES, float32, get_default_dtype, is_floating
from ox.errors import DTypeError
from ox.functions.out_argument import write

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


def like(value: Any, x: Any) -> Tensor:
    """A number, array or tensor as a tensor that can meet `x`: Python numbers take its type where they fit it."""
    if is_tensor(value):
        return value
    if isinstance(value, (bool, int, float, np.generic)):
        return scalar(value, scalar_type(value, x.array.dtype))
    return operator.as_input(value)


def stored_like(value: Any, x: Any, *, infinite_halves: bool = False) -> Tensor:
    """What is written into `x`, in its type; see `stored`."""
    if isinstance(value, (int, float, np.generic)) and not isinstance(value, COMPUTED):
        return stored(value, x.array.dtype, infinite_halves=infinite_halves)
    return cast(like(value, x), x.array.dtype)


def no_tensor(name: str, x: Any) -> DTypeError:
    return DTypeError(f"{name} takes a tensor", got=type(x).__name__, hint="ox.tensor(values) first")


def floating(x: Any) -> Tensor:
    """Whole numbers and bools in the default float type, as in PyTorch. Raises DTypeError for what is no tensor."""
    if not is_tensor(x):
        raise no_tensor("a function on tensors", x)
    return x if is_floating(x.array.dtype) else cast(x, get_default_dtype())


def only_floats(name: str, *tensors: Any) -> None:
    """Raise DTypeError for whole numbers and bools, which PyTorch refuses there too."""
    for x in tensors:
        if not is_tensor(x):
            raise no_tensor(name, x)
        if not is_floating(x.array.dtype):
            raise DTypeError(f"{name} is for floats", got=str(x.array.dtype), hint="x.float()")


def unary(op: Any, name: str | None = None) -> Any:
    """An operator of one input as a function."""

    def function(input: Any, *, out: Any = None) -> Tensor:
        if out is not None:
            return write(function(input), out, function.__name__)
        return op(input)

    return named(function, name or op.name.lower(), op.__doc__)


def unary_float(op: Any, name: str | None = None) -> Any:
    """An operator for floats only: integers become the default float type first, as in PyTorch."""

    def function(input: Any, *, out: Any = None) -> Tensor:
        if out is not None:
            return write(function(input), out, function.__name__)
        return op(floating(input))

    return named(function, name or op.name.lower(), op.__doc__)


def unary_wide(op: Any, name: str | None = None) -> Any:
    """The same for an operator that wants float32 or float64: half floats are rounded once, at the end."""

    def function(input: Any, *, out: Any = None) -> Tensor:
        if out is not None:
            return write(function(input), out, function.__name__)
        return in_single(op, floating(input))

    return by_policy(named(function, name or op.name.lower(), op.__doc__))


def in_single(op: Any, x: Tensor, **attributes: Any) -> Tensor:
    """`op` of a tensor of floats; of half floats in float32, rounded back."""
    dtype = x.array.dtype
    return cast(op(cast(x, float32), **attributes), dtype) if dtype in HALF_TYPES else op(x, **attributes)


def named(function: Any, name: str, doc: str | None) -> Any:
    """A function made in a loop, under the name that it is called by."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function
