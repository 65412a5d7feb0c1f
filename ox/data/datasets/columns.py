"""Tables of any source as columns: numbers as float64 with NaN for what is missing, text as strings with None."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.data.datasets.column_array import MISSING, column_array, neither
from ox.data.datasets.frames import column_values, frame_columns, is_series
from ox.errors import ArgumentError, DTypeError, LoadError, ShapeError, cannot_open
from ox.installation import install_command


class Mapped:
    """A column of numbers in a file, in one chunk or several; the rows that are read become float64."""

    dtype = np.dtype(np.float64)

    def __init__(self, pieces: list[NDArray[Any]]) -> None:
        self.pieces = pieces
        self._ends = np.cumsum([len(piece) for piece in pieces])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, rows: Any) -> Any:
        at = np.atleast_1d(np.flatnonzero(rows) if np.asarray(rows).dtype == np.bool_ else np.asarray(rows))
        at = np.where(at < 0, at + len(self), at)
        which = np.searchsorted(self._ends, at, side="right")
        out = np.empty(len(at), np.float64)
        for number in np.unique(which).tolist():
            piece, mine = self.pieces[number], which == number
            out[mine] = piece[at[mine] - (self._ends[number] - len(piece))]
        return out if np.ndim(rows) else out[0]


Columns = dict[str, Any]  # arrays [rows], or what is mapped
ROWS = 1 << 16  # read together


def read_columns(
    source: Any, text: Collection[str] = (), numbers: Collection[str] = (), delimiter: str = ","
) -> Columns:
    """The columns of a table, by name, in order.

    Args:
        source: the path of a CSV file with a header (``.tsv``: tabs), of a Parquet file (``.parquet``, ``.pq``) or an
            Arrow file (``.arrow``, ``.feather``); a data frame; or a mapping of names to sequences.
        text: columns to take as text even if they look like numbers.
        numbers: columns that must be numbers.

    Returns:
        float64 [rows] with NaN where a number is missing; object [rows] of strings, None where one is missing. Numbers
        of an Arrow file of which none is missing are `Mapped`: if it is not compressed, they stay in the file.

    Raises:
        LoadError: a file that is not there or damaged; text where a number must be. ArgumentError: a kind of file that
            is not read, or a package that is not installed. ShapeError: columns of different lengths.
    """
    columns, errors = read_usable_columns(source, text, numbers, delimiter)
    for error in errors.values():
        raise error
    return columns


def read_usable_columns(
    source: Any, text: Collection[str] = (), numbers: Collection[str] = (), delimiter: str = ","
) -> tuple[Columns, dict[str, DTypeError]]:
    """As `read_columns`; a column that is neither numbers nor text is an error only if it is used.

    Returns:
        the columns, and the errors of the others, by name.
    """
    errors: dict[str, DTypeError] = {}
    if isinstance(source, Mapping) or not isinstance(source, str | os.PathLike):
        columns = {}
        named = source if isinstance(source, Mapping) else frame_columns(source)
        for name, values in named.items():
            try:
                array, is_category = column_values(values) if is_series(values) else (values, False)
                columns[str(name)] = column_array(str(name), array, is_category or str(name) in text)
            except DTypeError as error:
                errors[str(name)] = error
    else:
        path = Path(source)
        kind = path.suffix.lower()
        if kind in (".csv", ".tsv", ".txt", ".data"):
            columns = _csv(path, set(text), frozenset(numbers), "\t" if kind == ".tsv" else delimiter)
        elif kind in (".parquet", ".pq", ".arrow", ".feather"):
            columns, errors = _arrow(path, kind, text)
        else:
            raise ArgumentError(
                f"{path} is not a supported kind of table",
                expected=".csv, .tsv, .parquet, .arrow or .feather",
                got=kind or "no suffix",
            )
    for name in numbers:
        if name in columns and columns[name].dtype == object:
            at = next(i for i, value in enumerate(columns[name]) if value is not None and not _is_number(value))
            raise LoadError(f"column '{name}' is not all numbers", got=f"{columns[name][at]!r} in row {at}")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1 and not (errors and not columns):
        raise ShapeError("a table has columns of one length", got=f"lengths {sorted(lengths)}")
    return columns, errors


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return "_" not in value and value.strip().isascii()  # 1_000 is Python's way to write, and no table's


def _csv(path: Path, text: set[str], numbers: frozenset[str], delimiter: str) -> Columns:
    while True:
        parts: dict[str, list[NDArray[Any]]] = {}
        turned = set()
        for names, start, rows in _rows(path, delimiter):
            for name, values in zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True):
                part = None if name in text else _numbers(values)
                if part is None:
                    if name in numbers:
                        at = next(i for i, v in enumerate(values) if v.strip() not in MISSING and not _is_number(v))
                        raise LoadError(
                            f"column '{name}' of {path} is not all numbers", got=f"{values[at]!r} in row {start + at}"
                        )
                    part = _text(values)
                    if name not in text and parts.get(name):
                        turned.add(name)  # so far it looked like numbers
                    text.add(name)
                parts.setdefault(name, []).append(part)
            if turned:
                break
        else:
            return {name: np.concatenate(column) for name, column in parts.items()}


def _numbers(values: tuple[str, ...]) -> NDArray[np.float64] | None:
    try:
        numbers = np.array([nan if v.strip() in MISSING else float(v) for v in values], np.float64)
    except ValueError:
        return None
    together = "".join(values)  # one look at all: what only Python takes for a number is rare
    if ("_" in together or not together.isascii()) and not all(v.strip() in MISSING or _is_number(v) for v in values):
        return None
    return numbers


def _text(values: tuple[str, ...]) -> NDArray[Any]:
    out = np.empty(len(values), object)
    # one string for all equal ones: categories come again and again
    out[:] = [None if (word := v.strip()) in MISSING else sys.intern(word) for v in values]
    return out


def _rows(path: Path, delimiter: str) -> Iterator[tuple[list[str], int, list[list[str]]]]:
    """The names of the columns, the number of the first row, and rows: many at a time, none of an empty table."""
    number = 0
    try:
        with open(path, newline="", encoding="utf-8-sig") as f:
            reader = csv.reader(f, delimiter=delimiter, strict=True)
            names = [name.strip() for name in next(reader, [])]
            if not any(names) or len(set(names)) != len(names):
                raise LoadError(
                    f"{path} has no header of different names",
                    expected="a first line with a name for each column",
                    got=", ".join(names) or "nothing",
                )
            rows: list[list[str]] = []
            start = 0
            for row in reader:
                if not row:
                    continue  # an empty line
                if len(row) != len(names):
                    raise LoadError(
                        f"line {reader.line_num} of {path} does not fit its header",
                        expected=f"{len(names)} fields",
                        got=str(len(row)),
                    )
                rows.append(row)
                number += 1
                if len(rows) == ROWS:
                    yield names, start, rows
                    rows, start = [], number
            if rows or not number:
                yield names, start, rows
    except (csv.Error, UnicodeDecodeError) as error:
        raise LoadError(
            f"{path} is no CSV file in UTF-8, or a damaged one", got=f"{error}, after row {number}"
        ) from None
    except OSError as error:
        raise cannot_open(path, error) from error


def _arrow(path: Path, kind: str, text: Collection[str]) -> tuple[Columns, dict[str, DTypeError]]:
    try:
        import pyarrow
        from pyarrow import feather, parquet
    except ImportError:
        raise ArgumentError(
            f"{kind} files are read by the package pyarrow, which is not installed",
            hint=install_command("tables"),
        ) from None
    try:
        with open(path, "rb"):
            pass
        table = (parquet if kind in (".parquet", ".pq") else feather).read_table(os.fspath(path), memory_map=True)
        table.validate(full=True)
    except OSError as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise cannot_open(path, error) from error
        raise LoadError(f"{path} cannot be read", got=str(error)) from error  # Arrow's own OSErrors
    except pyarrow.ArrowException as error:
        raise LoadError(f"{path} cannot be read", got=str(error)) from error
    if len(set(table.column_names)) != len(table.column_names):
        raise LoadError(f"{path} has two columns of one name", got=", ".join(table.column_names))
    columns: Columns = {}
    errors: dict[str, DTypeError] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        number = pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
        if number and name not in text and kind in (".arrow", ".feather") and len(column) and not column.null_count:
            columns[name] = Mapped([piece.to_numpy() for piece in column.chunks if len(piece)])
        else:
            try:
                columns[name] = column_array(name, _values(pyarrow, name, column), name in text)
            except DTypeError as error:
                errors[name] = error
    return columns, errors


def _values(pyarrow: Any, name: str, column: Any) -> Any:
    kinds = pyarrow.types
    kind = column.type
    if kinds.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if kinds.is_boolean(kind):
        column = column.cast("int8")
    elif kinds.is_decimal(kind):
        column = column.cast("float64")
    elif kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind):
        values = np.empty(len(column), object)
        values[:] = column.to_pylist()
        return values
    elif not (kinds.is_integer(kind) or kinds.is_floating(kind)):
        raise neither(name, str(kind))
    return column.to_numpy()
