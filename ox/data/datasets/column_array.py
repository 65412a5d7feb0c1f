"""One column of a table as an array: numbers as float64 with NaN for what is missing, text as strings with None."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.core.tensor import is_tensor
from ox.errors import DTypeError, ShapeError

MISSING = frozenset(("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?"))


def column_array(name: str, values: Any, as_text: bool) -> NDArray[Any]:
    """A column of `read_columns`.

    Raises:
        ShapeError: not one-dimensional. DTypeError: neither numbers nor text.
    """
    array = values.array if is_tensor(values) else np.asarray(values)
    if array.ndim != 1:
        raise ShapeError(f"column '{name}' is not one row of values", got=str(list(array.shape)))
    if array.dtype.kind in "biuf" and not as_text:
        return array.astype(np.float64)
    if array.dtype.kind not in "biufUTO":
        raise neither(name, str(array.dtype))
    items = array.tolist()
    if array.dtype == object and not as_text and not any(isinstance(v, str) for v in items):
        try:  # numbers among None
            return np.array([nan if _is_missing(v) else float(v) for v in items], np.float64)
        except (TypeError, ValueError):
            other = next(v for v in items if not _is_missing(v) and not isinstance(v, int | float))
            raise neither(name, type(other).__name__) from None
    out = np.empty(len(array), object)
    out[:] = [None if _is_missing(v) else str(v).strip() for v in items]
    return out


def neither(name: str, kind: str) -> DTypeError:
    """The error for a column of other values than numbers and texts."""
    return DTypeError(
        f"column '{name}' is neither numbers nor text", got=kind,
        hint=f"drop=[{name!r}], or make numbers of it",
    )  # fmt: skip


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() in MISSING
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # of pandas
        return True
    return isinstance(value, float | np.floating) and value != value
