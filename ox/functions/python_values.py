"""Numbers of Python as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.core.tensor import is_tensor
from ox.dtypes import DType, int64
from ox.errors import ArgumentError, ShapeError

Array = np.ndarray[Any, Any]
_LARGE = 2.0**63  # NumPy makes floats or objects of integers from here on


def from_python(data: Any, dtype: DType | None) -> Array:
    """A number, or lists of numbers and tensors, as an array in NumPy's type.

    Args:
        dtype: the type that they are for; None: the one that they have.

    Raises:
        ShapeError: rows of different lengths.
        ArgumentError: an integer that no type has, or not the one that it is for; int64 where none is named.
    """
    values = _without_tensors(data)
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError("these values do not make a tensor", expected="rows of one length at every depth") from None
    if array.dtype in (object, np.uint64) or (array.dtype == np.float64 and (abs(array) >= _LARGE).any()):
        integers = np.asarray(values, object)
        if all(type(n) is int for n in integers.flat):
            wanted = int64 if dtype is None else dtype
            check_range(integers, wanted)
            return integers.astype(wanted if wanted.kind in "iu" else np.float64)
    return array


def check_range(values: Array, dtype: DType) -> None:
    """Raises ArgumentError for numbers outside an integer type. As in PyTorch, negative ones count from the end of an
    unsigned type, but for uint64."""
    if dtype.kind not in "iu":
        return
    limits = np.iinfo(dtype)
    lowest = -limits.max if dtype.kind == "u" and dtype.itemsize < 8 else limits.min
    wrong = [n for n in values.reshape(-1).tolist() if not lowest <= n <= limits.max]
    if wrong:
        raise ArgumentError(
            f"{wrong[0]} does not fit {dtype}",
            expected=f"{limits.min} to {limits.max}",
            got=f"{len(wrong)} of {values.size} values outside" if values.size > 1 else str(wrong[0]),
            hint="a wider type, or ox.tensor(values).to(dtype), which wraps around",
        )


def _without_tensors(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return [_without_tensors(d) for d in data]
    return data.array if is_tensor(data) else data
