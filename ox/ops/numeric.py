"""What kernels share: half-width floats computed in float32 and rounded once, constants for gradient rules."""

from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.dtypes import DType, bfloat16, float16, float32
from ox.ops import operator

if TYPE_CHECKING:
    from ox.tensor import Tensor

HALVES = (float16, bfloat16)
_constants: dict[tuple[Any, DType], "Tensor"] = {}


def widened(kernel: Any) -> Any:
    """Give a kernel float32 where its inputs are float16 or bfloat16, and round its result once."""

    @wraps(kernel)
    def wide(xp: Any, *inputs: Any, **attributes: Any) -> Any:
        dtype = inputs[0].dtype
        if dtype not in HALVES:
            return kernel(xp, *inputs, **attributes)
        inputs = tuple([x.astype(float32) if x is not None and x.dtype == dtype else x for x in inputs])
        return narrowed(kernel(xp, *inputs, **attributes), dtype)

    return wide


def narrowed(array: Any, dtype: DType) -> Any:
    """The array in a smaller type; what does not fit is infinite, without a warning."""
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def number(value: Any, dtype: DType) -> "Tensor":
    """A number (not -0.0, which a dictionary takes for 0) as a tensor of no dimensions, made once for each type."""
    try:
        return _constants[value, dtype]
    except KeyError:
        with np.errstate(all="ignore"):  # what is too large for a float is infinite
            array = np.asarray(value, dtype)
        made = operator.make_tensor(array)
        if value == value and len(_constants) < 4096:  # NaN would never be found again
            array.flags.writeable = False
            _constants[value, dtype] = made
        return made


def constant(value: float, like: "Tensor") -> "Tensor":
    """The same in the type of `like`."""
    return number(value, like.array.dtype)
