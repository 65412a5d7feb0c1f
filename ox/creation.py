"""Tensors from Python values: `tensor`, `from_numpy`, `zeros`, `arange`, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox.dtypes import DType, get_default_dtype

if TYPE_CHECKING:
    pass


def as_array(data: Any, dtype: DType | None) -> Any:
    """An array that shares memory where it can; Python floats take the default type."""
    if hasattr(data, "node"):
        data = data.data
    if not hasattr(data, "dtype"):
        data = np.asarray(data)
        if dtype is None and data.dtype == np.float64:
            dtype = get_default_dtype()
    return data if dtype is None else data.astype(dtype, copy=False)
