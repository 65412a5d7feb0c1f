"""Data frames of other libraries as tables and as training data; stand-ins where the libraries are absent."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn, train
from ox.data.datasets import TableDataset, read_columns
from ox.data.datasets.frames import frame_array, is_frame, is_series
from ox.errors import ArgumentError, DTypeError, LoadError

COLUMNS: dict[str, list[Any]] = {
    "a": [1.0, 2.0, None, 4.0] * 5,
    "i": [1, None, 3, 4] * 5,
    "b": [True, None, False, True] * 5,
    "c": ["x", "y", "x", None] * 5,
    "code": [10, 20, 10, None] * 5,
    "y": [float(i) for i in range(20)],
}


class Column:
    """A column with the part of a Series that ox uses."""

    def __init__(self, values: Any, dtype: str = "") -> None:
        self.values, self.dtype = values, dtype

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.values, dtype)

    def to_numpy(self) -> np.ndarray:
        return np.asarray(self.values)

    def astype(self, kind: type) -> Column:
        assert kind is object
        return Column(np.array([*self.values, None], object)[:-1])


class Frame:
    """A data frame with the part of the interface that ox uses."""

    def __init__(self, columns: dict[Any, Any], kinds: dict[str, str] | None = None) -> None:
        self._columns, self._kinds = columns, kinds or {}

    @property
    def columns(self) -> list[Any]:
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, list):
            return Frame({each: self._columns[each] for each in name}, self._kinds)
        return Column(self._columns[name], self._kinds.get(name, ""))


class NAType:
    """Like pandas' missing value: comparing it gives no truth."""

    def __ne__(self, other: object) -> Any:
        raise TypeError("boolean value of NA is ambiguous")


def stand_in(columns: dict[str, list[Any]]) -> Any:
    missing = NAType()
    objects = {name: [missing if v is None else v for v in values] for name, values in columns.items()}
    return Frame(
        {name: np.array([*values, None], object)[:-1] for name, values in objects.items()}, {"code": "category"}
    )


def pandas_frame(columns: dict[str, list[Any]]) -> Any:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(columns, index=range(100, 100 + len(next(iter(columns.values())))))
    if "i" in columns:
        frame["i"], frame["b"] = frame["i"].astype("Int64"), frame["b"].astype("boolean")
        frame["code"] = frame["code"].astype("Int64").astype("category")
    return frame


def pandas_arrow_frame(columns: dict[str, list[Any]]) -> Any:
    pytest.importorskip("pyarrow")
    return pandas_frame(columns).convert_dtypes(dtype_backend="pyarrow")


def polars_frame(columns: dict[str, list[Any]]) -> Any:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(columns)
    if "code" in columns:
        frame = frame.with_columns(pl.col("code").cast(pl.String).cast(pl.Categorical))
    return frame


def arrow_table(columns: dict[str, list[Any]]) -> Any:
    pa = pytest.importorskip("pyarrow")
    named = {name: pa.array(values) for name, values in columns.items()}
    if "code" in columns:
        named["code"] = named["code"].dictionary_encode()
    return pa.table(named)


class Capsule:
    """An object that has only Arrow's PyCapsule interface, as results of databases have."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "a stand-in": stand_in,
    "pandas": pandas_frame,
    "pandas with Arrow": pandas_arrow_frame,
    "Polars": polars_frame,
    "an Arrow table": arrow_table,
    "an Arrow batch": lambda columns: arrow_table(columns).to_batches()[0],
    "a capsule": lambda columns: Capsule(arrow_table(columns)),
}


@rows("kind", FRAMES)
def test_a_frame_is_the_same_table_as_a_mapping(kind: str) -> None:
    expected = TableDataset(COLUMNS, target="y", categorical=["code"], missing="fill")
    table = TableDataset(FRAMES[kind](COLUMNS), target="y", missing="fill")
    assert table.feature_names == expected.feature_names
    assert table.feature_names[3:] == ["c=x", "c=y", "code=10", "code=20"]
    assert table.missing_counts == expected.missing_counts == {"a": 5, "i": 5, "b": 5, "c": 5, "code": 5}
    for got, wanted in zip(table.batch(np.arange(20)), expected.batch(np.arange(20)), strict=True):
        assert got.dtype == wanted.dtype and np.array_equal(got.numpy(), wanted.numpy())
    assert len(TableDataset(FRAMES[kind](COLUMNS), target="y", missing="drop")) == 5


@rows("kind", FRAMES)
def test_dates_are_refused_where_they_are_used(kind: str) -> None:
    dates = [datetime.datetime(2026, 1, 1) + datetime.timedelta(days=i) for i in range(20)]
    frame = FRAMES[kind]({"x": COLUMNS["y"], "when": dates, "y": COLUMNS["y"]})
    with pytest.raises(DTypeError, match="column 'when' is neither numbers nor text"):
        TableDataset(frame, target="y")
    assert TableDataset(frame, target="y", drop=["when"]).feature_names == ["x"]
    assert TableDataset(frame, target="y", features=["x"]).feature_names == ["x"]


@rows("kind", FRAMES)
def test_a_trainer_takes_frames(kind: str) -> None:
    numbers = FRAMES[kind]({"a": [1.0, 2.0, 3.0, 4.0] * 8, "n": [1, 2, 3, 4] * 8})
    outputs = FRAMES[kind]({"t": [2.5, 4.5, 6.5, 8.5] * 8, "k": [0, 1, 0, 1] * 8})
    if kind == "a capsule":  # which has no columns to choose
        assert frame_array(numbers, "x").dtype == np.float32
        return
    one = train.Trainer(nn.Linear(2, 1), nn.MSELoss(), None, (numbers, outputs["t"]), epochs=1, batch_size=8)
    inputs, targets = next(iter(one.batches()))
    assert (inputs.shape, inputs.dtype, targets.shape, targets.dtype) == ((8, 2), ox.float32, (8, 1), ox.float32)
    assert np.allclose(inputs.numpy()[:, 0], inputs.numpy()[:, 1])
    assert np.allclose(targets.numpy()[:, 0], 2 * inputs.numpy()[:, 0] + 0.5)
    assert one.fit()["epochs"] == 1
    classes = train.Trainer(nn.Linear(2, 2), nn.CrossEntropyLoss(), None, (numbers, outputs["k"]), epochs=1)
    assert next(iter(classes.batches()))[1].dtype == ox.int64
    # beside an array, and as validation data
    mixed = (np.ones((32, 2), np.float32), outputs["k"])
    train.Trainer(nn.Linear(2, 2), nn.CrossEntropyLoss(), None, mixed, (numbers, outputs["k"]), epochs=1).fit()


@pytest.mark.parametrize("kind", ["a stand-in", "pandas", "Polars", "an Arrow table"])
def test_frames_that_a_trainer_refuses(kind: str) -> None:
    frame = FRAMES[kind](COLUMNS)

    def start(*data: Any) -> None:
        train.Trainer(nn.Linear(1, 1), nn.MSELoss(), None, data if len(data) > 1 else data[0])

    one = frame.select(["a"]) if kind == "an Arrow table" else frame[["a"]]
    with pytest.raises(LoadError, match="column 'a' of input 0 has missing values") as caught:
        start(one, frame["y"])
    assert "5, the first in row 2" in str(caught.value) and "dropna" in str(caught.value)
    for name in ("c", "code"):
        with pytest.raises(ArgumentError, match="the target is text or categories, not numbers") as error:
            start(np.ones((20, 1), np.float32), frame[name])
        assert "TableDataset" in str(error.value)
    for alone in (frame, frame["y"]):
        with pytest.raises(ArgumentError, match="a data frame alone does not say which column is the target"):
            start(alone)


def test_other_objects_are_no_frames() -> None:
    for value in (
        np.ones(3),
        ox.ones(3),
        {"a": [1]},
        [1],
        "t.csv",
        None,
        ox.data.TensorDataset(np.ones(3)),
        np.float32(1),
    ):
        assert not is_frame(value) and not is_series(value)
    with pytest.raises(ArgumentError, match="this is not a table"):
        read_columns(3)
    with pytest.raises(LoadError, match="two columns of one name"):
        read_columns(Frame({"1": [1.0], 1: [2.0]}))
    assert list(read_columns(Frame({1: [1.0], ("a", "b"): [2.0]}))) == ["1", "('a', 'b')"]


def test_a_frame_that_is_not_computed_yet() -> None:
    class Lazy(Frame):
        def collect(self) -> None: ...

    lazy: list[Any] = [Lazy({"a": [1.0]})]
    if (pl := sys.modules.get("polars")) is not None:
        lazy.append(pl.DataFrame({"a": [1.0]}).lazy())
    for frame in lazy:
        with pytest.raises(ArgumentError, match="not computed yet") as caught:
            TableDataset(frame)
        assert "collect()" in str(caught.value)


def test_a_capsule_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ArgumentError, match="pyarrow, which is not installed"):
        read_columns(Capsule(None))


def test_no_library_of_frames_is_imported() -> None:
    code = (
        "import sys; from ox.data.datasets import TableDataset; from ox import train, nn\n"
        "TableDataset({'a': [1.0, 2.0]}, target='a'); train.Trainer\n"
        "print([name for name in ('pandas', 'polars', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
