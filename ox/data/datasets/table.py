"""Tables: rows of numbers and categories as samples, encoded with statistics of the training rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox import random
from ox.core.operator import make_tensor
from ox.data.checksum import checksum
from ox.data.dataset import Dataset, random_split
from ox.data.datasets.columns import Columns, Mapped, read_usable_columns
from ox.errors import ArgumentError, BoundsError, LoadError
from ox.tensors.tensor import Tensor

LARGE = 1 << 28  # bytes: what is larger is encoded batch by batch
IDENTIFIER_SHARE = 0.9  # distinct values per row, from which a text column probably names the rows
MIN_IDENTIFIER_ROWS = 10  # in a smaller table, each category may occur once by chance


@dataclass(frozen=True)
class Column:
    """How a column is encoded: a number as (x - mean) / std, a category as its place in `categories`."""

    name: str
    kind: str  # number or category
    mean: float = 0.0
    std: float = 1.0
    categories: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Coding:
    """How a table's columns become numbers: learnt from the training rows, used for all others."""

    features: list[Column]
    target: Column | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a JSON file beside the model."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Coding:
        """What `to_dict` gave. Raises LoadError for what is none."""
        try:
            target = values["target"]
            return Coding([Column(**c) for c in values["features"]], None if target is None else Column(**target))
        except (KeyError, TypeError) as error:
            raise LoadError("invalid Coding of a table", got=str(error)) from None


class TableSource:
    """The columns of a table that several datasets have rows of."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._fingerprint: str | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def rows(self, indices: NDArray[np.int64]) -> Columns:
        """The columns of some rows, in this order."""
        return {name: column[indices] for name, column in self.columns.items()}

    def fingerprint(self) -> str:
        """A checksum of the columns; see `Dataset`."""
        if self._fingerprint is None:
            parts = [[name, *map(_piece_content, _pieces(column))] for name, column in self.columns.items()]
            self._fingerprint = checksum(parts)
        return self._fingerprint


class TableDataset(Dataset):
    """The rows of a table.

    A sample is ``(features, target)``: features float32 [f], the numbers normalized and then each category as one
    number a value, 1 where it is that; with ``one_hot=False`` it is ``(numbers, codes, target)``, float32 [a] and int64
    [b], for embeddings, where code 0 is a value that is missing or was not seen in training. The target is int64 []
    (a class, if the column is text or stands in `categorical`) or float32 [] (a number, as it is in the table); it is
    left out where there is none.

    The numbers of an uncompressed Arrow file stay there and are encoded batch by batch, so it may be larger than
    memory; so are categories that would take more than `LARGE` bytes as one number a value.

    A validation table takes `coding=train.coding`: means, deviations and categories are those of the training rows.

    Attributes:
        coding: means, deviations and categories; see `Coding`.
        feature_names: a name for each of the f features, "colour=red" for a category's.
        classes: the target's classes; empty if it is a number.
        missing_counts: how many values are missing, by column.
        source, indices: of a part that `split` made, the columns of the whole table and the rows in it, int64 [n];
            of another table its own columns, and None.

    Args:
        source: a path (CSV with a header, TSV, Parquet, Arrow), a data frame (pandas, Polars, PyArrow, or another with
            Arrow's PyCapsule interface) or a mapping of names to sequences; see `read_columns`.
        target: the column to foretell; None for no target. Given by `coding` if there is one.
        features: the columns to foretell it from; default all others. Given by `coding` if there is one.
        categorical: columns whose numbers are names of things, such as codes of places; and text columns with another
            value in each row, to use them all the same.
        drop: columns that are not used, such as an identifier of the row.
        missing: what becomes of a row with a missing feature. "error": refused; "fill": a number becomes the training
            rows' mean, a category one that is none of the known; "drop": the row is left out. A missing target is
            refused, or dropped with "drop".
        one_hot: see above.
        max_categories: the most values that a category may have with `one_hot`: a column of names or numbers of the
            rows has one a row, teaches nothing, and would take as many numbers a row.
        coding: of the training table.
        delimiter: of a CSV file.

    Raises:
        LoadError: a file that is not there or damaged, values that are missing, infinite or of another kind.
        ArgumentError: a category with more than `max_categories` values; a text column, also the target, with another
            value in each row, which identifies the rows; columns that are not there; options that do not fit.

    Warns:
        of a text column of which nearly all values differ, and in a table of fewer than `MIN_IDENTIFIER_ROWS` rows of
        one with another value in each row.
    """

    def __init__(
        self,
        source: Any,
        target: str | None = None,
        features: Sequence[str] | None = None,
        *,
        categorical: Sequence[str] = (),
        drop: Sequence[str] = (),
        missing: str = "error",
        one_hot: bool = True,
        max_categories: int = 1000,
        coding: Coding | None = None,
        delimiter: str = ",",
    ) -> None:
        if missing not in ("error", "fill", "drop"):
            raise ArgumentError("missing is 'error', 'fill' or 'drop'", got=repr(missing))
        self.missing, self.one_hot, self.max_categories = missing, one_hot, max_categories
        known = [] if coding is None else [*coding.features, *([coding.target] if coding.target else [])]
        text = {*categorical, *(column.name for column in known if column.kind == "category")}
        numbers = {column.name for column in known if column.kind == "number"}
        columns, errors = read_usable_columns(source, text, numbers, delimiter)
        if coding is None:
            names = [name for name in (*columns, *errors) if name != target] if features is None else list(features)
            if wrong := [name for name in drop if name == target or (features is not None and name in features)]:
                raise ArgumentError(f"column {wrong[0]!r} is to be used and dropped", hint="remove it from drop")
            names = [name for name in names if name not in drop]
            wanted = [*names, *([target] if target is not None else [])]
        else:
            wanted = [column.name for column in known]
        for name in wanted:
            if name in errors:
                raise errors[name]
        lacking = [name for name in (*wanted, *categorical, *drop) if name not in columns and name not in errors]
        if lacking:
            raise ArgumentError(
                f"the table has no column {', '.join(map(repr, lacking))}", got=", ".join(columns),
                hint=_delimiter(columns),
            )  # fmt: skip
        columns = {name: columns[name] for name in wanted}
        self.missing_counts = {name: int(gone.sum()) for name, c in columns.items() if (gone := _missing(c)).any()}
        if coding is not None:
            target = coding.target.name if coding.target else None
        columns = self._kept(columns, target)
        self.source = TableSource(columns)
        self.indices: NDArray[np.int64] | None = None
        if coding is None:
            _check_identifiers({name: columns[name] for name in wanted if name not in categorical}, target)
            coding = Coding(
                [_learnt(name, columns[name]) for name in names],
                None if target is None else _learnt(target, columns[target], scale=False),
            )
        self.coding, self._columns = coding, columns
        self._encode()

    def _kept(self, columns: Columns, target: str | None) -> Columns:
        """The rows that the rule for missing values leaves."""
        gone = {name: _missing(column) for name, column in columns.items()}
        bad = [n for n in self.missing_counts if self.missing == "error" or (self.missing == "fill" and n == target)]
        if bad:
            raise LoadError(
                "the table has missing values",
                got=", ".join(f"{self.missing_counts[n]:,} in '{n}', the first in row {gone[n].argmax()}" for n in bad),
                hint="missing='drop'" + (" or missing='fill'" if self.missing == "error" else ""),
            )
        if self.missing == "drop" and self.missing_counts:
            rows = ~np.logical_or.reduce(list(gone.values()))
            columns = {name: column[rows] for name, column in columns.items()}
        for name, column in columns.items():
            infinite = _each(column, np.isinf) if column.dtype != object else np.zeros(0, np.bool_)
            if infinite.any():
                at = int(infinite.argmax())
                raise LoadError(f"column '{name}' has infinite numbers", got=f"{column[at]} in row {at}")
        return columns

    def _encode(self) -> None:
        """All rows at once; columns in a file are read batch by batch."""
        features, target = self.coding.features, self.coding.target
        self.feature_names = [column.name for column in features if column.kind == "number"]
        large = False
        if self.one_hot:
            words = [column for column in features if column.kind == "category"]
            self._check(words)
            large = 4 * len(self) * sum(len(column.categories) for column in words) > LARGE
            self.feature_names += [f"{c.name}={value}" for c in words for value in c.categories]
        self.classes: list[str] = target.categories if target is not None else []
        self._ready: list[NDArray[Any]] | None = None
        if not large and not any(isinstance(column, Mapped) for column in self._columns.values()):
            self._ready = self._encoded(self._columns)

    def _check(self, words: list[Column]) -> None:
        """Refuse a category with too many values."""
        for column in words:
            count = len(column.categories)
            if count > self.max_categories:
                size = 4 * count * len(self) / 1e6
                few = ", ".join(repr(value) for value in column.categories[:3])
                raise ArgumentError(
                    f"column '{column.name}' has {count:,} different values, too many for one number each",
                    expected=f"at most {self.max_categories:,} (max_categories)",
                    got=f"{few}, ...: {size:,.0f} MB for {len(self):,} rows",
                    hint=f"features=[...] without '{column.name}' where it only names the rows; one_hot=False gives "
                    f"its codes, for nn.Embedding; max_categories={count} takes it all the same",
                )

    def _encoded(self, columns: Columns) -> list[NDArray[Any]]:
        """The samples that the columns make: features, codes unless they are in there, the target if there is one."""
        features, target = self.coding.features, self.coding.target
        count = len(next(iter(columns.values()))) if columns else 0
        numbers = [column for column in features if column.kind == "number"]
        dense = np.empty((count, len(numbers)), np.float32)
        for i, column in enumerate(numbers):
            values = (columns[column.name] - column.mean) / column.std
            dense[:, i] = np.where(np.isnan(values), 0.0, values)
        words = [column for column in features if column.kind == "category"]
        codes = [_codes(column, columns[column.name]) for column in words]
        if self.one_hot:
            ones = [
                code[:, np.newaxis] == np.arange(1, len(c.categories) + 1) for c, code in zip(words, codes, strict=True)
            ]
            made = [np.concatenate([dense, *(part.astype(np.float32) for part in ones)], 1)]
        else:
            made = [dense, np.stack(codes, 1) if codes else np.zeros((count, 0), np.int64)]
        if target is None:
            return made
        if target.kind == "number":
            return [*made, columns[target.name].astype(np.float32)]
        answers = _codes(target, columns[target.name]) - 1
        if (answers < 0).any():
            at = int((answers < 0).argmax())
            raise LoadError(
                f"the target '{target.name}' has a class that the training rows have not",
                expected=", ".join(self.classes[:20]),
                got=f"{columns[target.name][at]!r} in row {at}",
            )
        return [*made, answers]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        if not -len(self) <= index < len(self):
            raise BoundsError(f"the table has no row {index}", expected=f"0 to {len(self) - 1}")
        return tuple(make_tensor(tensor.array[0]) for tensor in self.batch(np.array([index])))

    def batch(self, indices: NDArray[Any]) -> list[Tensor]:
        """The rows of many indices, [n, ...] each."""
        if self._ready is not None:
            return [make_tensor(array[indices]) for array in self._ready]
        rows = {name: column[indices] for name, column in self._columns.items()}
        return [make_tensor(array) for array in self._encoded(rows)]

    def fingerprint(self) -> str:
        """A checksum of the columns; see `Dataset`."""
        return TableSource(self._columns).fingerprint()

    def select(self, indices: NDArray[np.int64], coding: Coding) -> TableDataset:
        """Rows of `source`, in this order, with a coding."""
        part = TableDataset(
            self.source.rows(indices), missing="fill" if self.missing == "fill" else "error", one_hot=self.one_hot,
            max_categories=self.max_categories, coding=coding,
        )  # fmt: skip
        part.source, part.indices = self.source, indices
        return part

    def split(self, lengths: Sequence[float], generator: random.Generator | None = None) -> list[TableDataset]:
        """Parts without overlap, at random, as `random_split` makes them; all are encoded by the first one's rows.

        Args:
            lengths: counts, or fractions that add up to 1; the first part is the one to train on. All are read into
                memory.
        """
        order = [np.asarray(part.indices, np.int64) for part in random_split(self, lengths, generator)]
        if self.indices is not None:
            order = [self.indices[part] for part in order]
        rows = self.source.rows(order[0])
        # of the target all classes: one that by chance is in none of the training rows is still a class
        coding = Coding([_learnt(c.name, rows[c.name]) for c in self.coding.features], self.coding.target)
        return [self.select(part, coding) for part in order]


def _check_identifiers(columns: Columns, target: str | None) -> None:
    """Refuses a text column with another value in each row, and warns of one that is nearly so."""
    for name, column in columns.items():
        if column.dtype != object:
            continue
        present = [value for value in column if value is not None]
        count, distinct = len(present), len(set(present))
        is_target = name == target
        if is_target and len(column) < MIN_IDENTIFIER_ROWS:
            continue  # a toy with a row for each class
        use = f"categorical=[{name!r}] uses it"
        options = f"another target; {use}" if is_target else f"drop=[{name!r}] leaves it out, {use}"
        if count > 1 and distinct == count and len(column) >= MIN_IDENTIFIER_ROWS:
            raise ArgumentError(
                f"the target '{name}' has another value in each row: no class has two rows"
                if is_target
                else f"column '{name}' has another value in each row: it identifies the rows, and a model learns "
                "nothing from it",
                got=f"{distinct:,} values in {count:,} rows: {', '.join(map(repr, present[:3]))}, ...", hint=options,
            )  # fmt: skip
        if count > 1 and distinct >= IDENTIFIER_SHARE * count:
            warnings.warn(
                f"column '{name}' has {distinct:,} different values in {count:,} rows; if it identifies them, a model "
                f"learns nothing from it: {options}",
                stacklevel=3,
            )


def _delimiter(columns: Columns) -> str | None:
    """The hint for a table all of whose names came as one."""
    if not columns:
        return None
    (name, *more) = columns
    found = next((mark for mark in (";", "\t", "|") if mark in name), None)
    return f"delimiter={found!r}" if found and not more else None


def _pieces(column: Any) -> list[NDArray[Any]]:
    return column.pieces if isinstance(column, Mapped) else [column]


def _piece_content(piece: NDArray[Any]) -> Any:
    """An array, or the texts as bytes, which are faster to read than objects."""
    if piece.dtype != object:
        return piece
    return "\0".join("\1" if value is None else value for value in piece).encode("utf-8", "surrogatepass")


def _each(column: Any, function: Any) -> NDArray[np.bool_]:
    """`function` of all numbers, of a mapped column piece by piece."""
    return np.concatenate([function(piece) for piece in _pieces(column)])


def _missing(column: Any) -> NDArray[np.bool_]:
    if column.dtype == object:
        return np.array([value is None for value in column], np.bool_)
    return _each(column, np.isnan)


def _learnt(name: str, column: Any, scale: bool = True) -> Column:
    if column.dtype == object:
        return Column(name, "category", categories=sorted({value for value in column if value is not None}))
    pieces = [piece[~np.isnan(piece)] for piece in _pieces(column)] if scale else []
    count = sum(map(len, pieces))
    if not count:
        return Column(name, "number")
    mean = sum(float(piece.sum(dtype=np.float64)) for piece in pieces) / count
    std = (sum(float(np.square(piece - mean).sum(dtype=np.float64)) for piece in pieces) / count) ** 0.5
    return Column(name, "number", mean, std if std > 0 else 1.0)


def _codes(column: Column, values: NDArray[Any]) -> NDArray[np.int64]:
    """From 1 on; 0 for a value that is missing or unknown."""
    places = {category: i for i, category in enumerate(column.categories, 1)}
    return np.fromiter((places.get(value, 0) for value in values), np.int64, len(values))
