"""Kernels of float16 and bfloat16: they compute in float32 and round once."""

from functools import wraps
from typing import Any

import numpy as np

from ox.dtypes import HALF_TYPES, DType, float32


def in_float32(kernel: Any) -> Any:
    """Give a kernel float32 where its inputs are float16 or bfloat16, and round its result once."""

    @wraps(kernel)
    def wide(xp: Any, *inputs: Any, **attributes: Any) -> Any:
        dtype = inputs[0].dtype
        if dtype not in HALF_TYPES:
            return kernel(xp, *inputs, **attributes)
        inputs = tuple([x.astype(float32) if x is not None and x.dtype == dtype else x for x in inputs])
        return downcast(kernel(xp, *inputs, **attributes), dtype)

    return wide


def downcast(array: Any, dtype: DType) -> Any:
    """The array in a smaller type; what does not fit is infinite, without a warning."""
    with np.errstate(all="ignore"):
        return array.astype(dtype)
