"""Data frames of other libraries (pandas, Polars, PyArrow and others), by their columns, without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.core.tensor import is_tensor
from ox.data.datasets.column_array import column_array
from ox.errors import ArgumentError, DTypeError, LoadError
from ox.installation import install_command

STREAM = "__arrow_c_stream__"  # Arrow's PyCapsule interface


def is_frame(value: Any) -> bool:
    """Whether this is a data frame: an object with named columns, or with Arrow's PyCapsule interface of a table."""
    if isinstance(value, str | bytes | Mapping | np.ndarray | type) or is_tensor(value):
        return False
    lazy = callable(getattr(value, "collect", None)) and hasattr(type(value), "columns")
    return lazy or _names(value) is not None or (hasattr(value, STREAM) and not is_series(value))


def is_series(value: Any) -> bool:
    """Whether this is one column of a data frame: a Series of pandas or Polars, an array of PyArrow."""
    if isinstance(value, np.ndarray | np.generic | type) or is_tensor(value) or _names(value) is not None:
        return False
    return callable(getattr(value, "to_numpy", None)) and hasattr(value, "__len__") and hasattr(value, "__array__")


def frame_columns(frame: Any) -> dict[Any, Any]:
    """The columns of a data frame, by name, as they are in it.

    Raises:
        ArgumentError: it is no data frame, or one that is not computed yet. LoadError: two columns of one name.
    """
    if callable(getattr(frame, "collect", None)):  # a LazyFrame
        raise ArgumentError(
            "the columns of the data frame are not computed yet", got=type(frame).__name__, hint="frame.collect()"
        )
    names = _names(frame)
    if names is None and hasattr(frame, STREAM):
        return frame_columns(_read_stream(frame))
    if names is None:
        raise ArgumentError(
            "this is not a table", expected="a path, a data frame, or a mapping of names to columns",
            got=type(frame).__name__,
        )  # fmt: skip
    texts = [str(name) for name in names]
    if len(set(texts)) != len(texts):
        twice = next(name for name in texts if texts.count(name) > 1)
        raise LoadError("the data frame has two columns of one name", got=repr(twice))
    return {name: frame[name] for name in names}


def column_values(values: Any) -> tuple[NDArray[Any], bool]:
    """A column as an array; and whether it holds categories, also where these are numbers."""
    kind = str(getattr(values, "dtype", getattr(values, "type", ""))).lower()
    is_category = kind.startswith(("category", "categorical", "enum", "dictionary"))
    if is_category:  # as objects, because integers with missing values would become floats
        if callable(getattr(values, "astype", None)):  # pandas
            values = values.astype(object)
        elif callable(getattr(values, "to_pylist", None)):  # PyArrow
            values = np.array([*values.to_pylist(), None], object)[:-1]
    return np.asarray(values), is_category


def frame_array(frame: Any, name: str) -> NDArray[Any]:
    """A data frame as float32 [n, columns]; one column of integers as int64 [n], such as classes, and one of other
    numbers as float32 [n, 1].

    Args:
        name: what it is, for errors.

    Raises:
        ArgumentError: text, categories or other values than numbers. LoadError: missing values.
    """
    if is_series(frame):
        array, is_category = column_values(frame)
        integers = not is_category and (array.dtype.kind in "biu" or _all_integers(array))
        numbers = _numbers(column_array(name, array, is_category), name, name)
        return numbers.astype(np.int64) if integers else numbers.astype(np.float32)[:, np.newaxis]
    columns = []
    for key, values in frame_columns(frame).items():
        array, is_category = column_values(values)
        columns.append(_numbers(column_array(str(key), array, is_category), str(key), name))
    if not columns:
        raise ArgumentError(f"{name} has no columns")
    return np.stack(columns, 1).astype(np.float32)


def _numbers(column: NDArray[Any], name: str, frame: str) -> NDArray[Any]:
    what = frame if name == frame else f"column '{name}' of {frame}"
    if column.dtype == object:
        raise ArgumentError(
            f"{what} is text or categories, not numbers",
            hint="TableDataset(frame, target=...) encodes categories",
        )  # fmt: skip
    if (gone := np.isnan(column)).any():
        raise LoadError(
            f"{what} has missing values",
            got=f"{int(gone.sum()):,}, the first in row {gone.argmax()}",
            hint="TableDataset(frame, target=..., missing='fill'), or frame.dropna()",
        )  # fmt: skip
    return column


def _all_integers(array: NDArray[Any]) -> bool:
    return array.dtype == object and all(isinstance(value, int | np.integer) for value in array.tolist())


def _names(frame: Any) -> list[Any] | None:
    """The names of the columns; None for other objects."""
    if not hasattr(frame, "__getitem__") or callable(getattr(frame, "collect", None)):
        return None
    for attribute in ("column_names", "columns"):
        names = getattr(frame, attribute, None)
        if names is not None and not callable(names) and not isinstance(names, str):
            return list(names)
    return None


def _read_stream(frame: Any) -> Any:
    """The table of an object that has only Arrow's PyCapsule interface."""
    try:
        import pyarrow
    except ImportError:
        raise ArgumentError(
            f"{type(frame).__name__} is read by the package pyarrow, which is not installed",
            hint=install_command("tables"),
        ) from None
    try:
        return pyarrow.table(frame)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise DTypeError(f"{type(frame).__name__} is not a table", got=str(error)) from error
