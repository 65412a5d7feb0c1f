"""Tables: columns from files, their encoding, missing values, and the statistics of the training rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.data import DataLoader
from ox.data.datasets import Coding, TableDataset, read_columns
from ox.data.datasets import columns as columns_module
from ox.errors import ArgumentError, BoundsError, DTypeError, LoadError, ShapeError
from ox.installation import install_command

FLOWERS = """length, colour ,width,kind
1.0,red,10,rose
2.0, blue,20,lily
3.0,red,60,rose
6.0,"green, dark",30,lily
"""


def written(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_numbers_and_categories(tmp_path: Path) -> None:
    table = TableDataset(written(tmp_path, FLOWERS), target="kind")
    assert table.feature_names == ["length", "width", "colour=blue", "colour=green, dark", "colour=red"]
    assert table.classes == ["lily", "rose"] and len(table) == 4 and table.missing_counts == {}
    x, y = table.batch(np.arange(4))
    assert x.dtype == ox.float32 and y.dtype == ox.int64 and y.tolist() == [1, 0, 1, 0]
    raw = np.array([[1, 10], [2, 20], [3, 60], [6, 30]], float)
    assert np.allclose(x.numpy()[:, :2], (raw - raw.mean(0)) / raw.std(0), atol=1e-6)
    assert x.numpy()[:, 2:].tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    one_x, one_y = table[-2]
    assert one_x.tolist() == x.numpy()[2].tolist() and one_y.item() == 1 and one_y.shape == ()
    assert next(iter(DataLoader(table, batch_size=3)))[0].shape == (3, 5)
    with pytest.raises(BoundsError, match="no row 4"):
        table[4]


def test_codes_for_embeddings_and_a_number_as_target(tmp_path: Path) -> None:
    table = TableDataset(written(tmp_path, FLOWERS), target="width", features=["colour", "length"], one_hot=False)
    numbers, codes, target = table.batch(np.array([3, 0]))
    assert numbers.shape == (2, 1) and codes.dtype == ox.int64 and codes.tolist() == [[2], [3]]
    assert target.dtype == ox.float32 and target.tolist() == [30, 10] and table.classes == []
    bare = TableDataset(written(tmp_path, FLOWERS), features=["length"], one_hot=False)
    assert [t.shape for t in bare.batch(np.arange(4))] == [(4, 1), (4, 0)]
    assert len(TableDataset(written(tmp_path, FLOWERS))[0]) == 1


def test_others_are_encoded_by_the_training_rows(tmp_path: Path) -> None:
    train = TableDataset(written(tmp_path, FLOWERS), target="kind")
    kept = Coding.from_dict(json.loads(json.dumps(train.coding.to_dict())))
    other = written(tmp_path, "kind,colour,width,length\nlily,yellow,10,1\nrose,blue,10,6\n", "other.csv")
    test = TableDataset(other, coding=kept)
    x, y = test.batch(np.arange(2))
    assert y.tolist() == [0, 1] and x.numpy()[:, 2:].tolist() == [[0, 0, 0], [1, 0, 0]]  # yellow was never seen
    assert x.numpy()[0, :2].tolist() == train[0][0].numpy()[:2].tolist()
    assert TableDataset(other, coding=kept, one_hot=False)[0][1].tolist() == [0]
    with pytest.raises(LoadError, match="a class that the training rows have not") as error:
        TableDataset(written(tmp_path, FLOWERS.replace("lily", "iris")), coding=kept)
    assert "'iris' in row 1" in str(error.value)
    with pytest.raises(ArgumentError, match="no column 'width'"):
        TableDataset(written(tmp_path, "length,colour,kind\n1,red,rose\n"), coding=kept)
    with pytest.raises(LoadError, match=r"'length' of .* is not all numbers") as error:
        TableDataset(written(tmp_path, FLOWERS.replace("3.0", "long")), coding=kept)
    assert "'long' in row 2" in str(error.value)
    with pytest.raises(LoadError, match="invalid Coding"):
        Coding.from_dict({"features": [{"nam": 1}], "target": None})


GAPS = "a,b,t\n1,x,0\n?,y,1\n5,,2\n NA ,x,3\n"


def test_missing_values_follow_a_declared_rule(tmp_path: Path) -> None:
    path = written(tmp_path, GAPS)
    with pytest.raises(LoadError, match="missing values") as error:
        TableDataset(path, target="t")
    assert "2 in 'a', the first in row 1" in str(error.value) and "1 in 'b', the first in row 2" in str(error.value)
    filled = TableDataset(path, target="t", missing="fill")
    assert filled.missing_counts == {"a": 2, "b": 1}
    x = filled.batch(np.arange(4))[0].numpy()
    assert x[:, 0].tolist() == [-1, 0, 1, 0] and x[:, 1:].tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]
    dropped = TableDataset(path, target="t", missing="drop")
    assert len(dropped) == 1 and dropped[0][1].item() == 0 and dropped.coding.features[0].mean == 1
    for rule in ("fill", "error"):
        with pytest.raises(LoadError, match="missing values"):
            TableDataset(written(tmp_path, "a,t\n1,2\n1,\n"), target="t", missing=rule)
    assert len(TableDataset(written(tmp_path, "a,t\n1,2\n1,\n"), target="t", missing="drop")) == 1
    with pytest.raises(ArgumentError, match="'error', 'fill' or 'drop'"):
        TableDataset(path, missing="zero")


def test_a_split_is_encoded_by_its_first_part() -> None:
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(5, 3, 200), "c": rng.choice(["u", "v", "w"], 200), "t": np.arange(200) % 3}
    table = TableDataset(columns, target="t", categorical=["t"])
    assert table.classes == ["0", "1", "2"]
    train, test = table.split([0.75, 0.25], ox.Generator(1))
    assert (len(train), len(test)) == (150, 50) and test.coding == train.coding != table.coding
    x = train.batch(np.arange(150))[0].numpy()
    assert abs(x[:, 0].mean()) < 1e-5 and abs(x[:, 0].std() - 1) < 1e-5
    mean, std = train.coding.features[0].mean, train.coding.features[0].std
    raw = np.concatenate([part.batch(np.arange(len(part)))[0].numpy()[:, 0] * std + mean for part in (train, test)])
    assert np.allclose(np.sort(raw), np.sort(columns["a"]), atol=1e-4)  # each row in one part
    again = table.split([0.75, 0.25], ox.Generator(1))[1]
    assert again.batch(np.arange(50))[1].tolist() == test.batch(np.arange(50))[1].tolist()
    # what is missing is filled by the rows of the first part
    gaps = TableDataset({"a": [1.0, None, 5.0, None] * 5, "t": np.arange(20.0)}, target="t", missing="fill")
    for part in gaps.split([10, 10], ox.Generator(0)):
        x, y = (tensor.numpy() for tensor in part.batch(np.arange(10)))
        assert (x[y.astype(int) % 2 == 1] == 0).all() and (x[y.astype(int) % 2 == 0] != 0).all()
    # a class of which no row is in the first part
    rare = TableDataset({"a": np.arange(4.0), "t": ["x", "y", "z", "w"]}, target="t")
    assert [part.classes for part in rare.split([2, 2], ox.Generator(0))] == [["w", "x", "y", "z"]] * 2


def test_a_mapping_of_columns() -> None:
    table = TableDataset(
        {"n": [1, 2], "m": ox.tensor([0.0, 4.0]), "o": [None, 3.5], "b": [True, False]}, missing="fill"
    )
    assert table.batch(np.arange(2))[0].tolist() == [[-1, -1, 0, 1], [1, 1, 0, -1]]
    assert read_columns({"a": ["x", None, " y "]})["a"].tolist() == ["x", None, "y"]
    assert read_columns({"a": [3, 4]}, text=["a"])["a"].tolist() == ["3", "4"]
    for bad, error in (({"a": [1], "b": [1, 2]}, ShapeError), ({"a": [[1]]}, ShapeError), ({"a": [1j]}, DTypeError)):
        with pytest.raises(error):
            read_columns(bad)
    with pytest.raises(LoadError, match=r"'a' has infinite numbers"):
        TableDataset({"a": [1.0, np.inf]})
    with pytest.raises(ArgumentError, match="no column 'z'"):
        TableDataset({"a": [1.0]}, target="z")
    constant = TableDataset({"a": [7.0, 7.0]})
    assert constant[0][0].tolist() == [0]


def test_a_column_that_turns_to_text_late_is_all_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "ROWS", 2)
    columns = read_columns(written(tmp_path, "a,b\n01,1\n2,2\n3,3\nx,\n5,5\n"))
    assert columns["a"].tolist() == ["01", "2", "3", "x", "5"]
    assert columns["b"][:3].tolist() == [1, 2, 3] and np.isnan(columns["b"][3]) and columns["b"][4] == 5


CSV_DAMAGE = {
    "": "no header",
    "a,a\n1,2\n": "no header of different names",
    "a,b\n1,2\n3\n": "line 3 .*does not fit its header",
    'a,b\n1,"2\n': "no CSV file",
    "a\n" + "x" * 200_000 + "\n": "no CSV file",
}


@pytest.mark.parametrize("text", CSV_DAMAGE)
def test_damaged_csv_files(tmp_path: Path, text: str) -> None:
    with pytest.raises(LoadError, match=CSV_DAMAGE[text]):
        TableDataset(written(tmp_path, text))


def test_other_files(tmp_path: Path) -> None:
    tabs = TableDataset(written(tmp_path, "a\tb\n1\t2\n", "t.tsv"))
    semicolons = TableDataset(written(tmp_path, "a;b\n1;2\n"), delimiter=";")
    assert tabs.feature_names == semicolons.feature_names == ["a", "b"]
    (tmp_path / "latin.csv").write_bytes("a\nü\n".encode("latin-1"))
    with pytest.raises(LoadError, match="no CSV file in UTF-8"):
        TableDataset(tmp_path / "latin.csv")
    with pytest.raises(LoadError, match="cannot be opened"):
        TableDataset(tmp_path / "none.csv")
    with pytest.raises(ArgumentError, match="not a supported kind of table"):
        TableDataset(tmp_path / "t.xlsx")
    empty = TableDataset(written(tmp_path, "a,b\n"))
    assert len(empty) == 0 and empty.feature_names == ["a", "b"]


@pytest.mark.parametrize("word", ["1_000", "\uff11\uff12"])
def test_what_only_python_takes_for_a_number_is_text(tmp_path: Path, word: str) -> None:
    path = written(tmp_path, f"a,b\n1,x\n{word},y\nNA,z\n")
    assert read_columns(path)["a"].tolist() == ["1", word, None]
    with pytest.raises(LoadError, match=f"'{word}' in row 1"):
        read_columns(path, numbers={"a"})
    spaces = read_columns(written(tmp_path, "a,n_b\n\u00a01\u00a0,2\n", "s.csv"))  # of no meaning, as spaces are
    assert spaces["a"].tolist() == [1]


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_another_delimiter_is_guessed(tmp_path: Path, mark: str) -> None:
    path = written(tmp_path, f"a{mark}y\n1{mark}2\n")
    with pytest.raises(ArgumentError) as caught:
        TableDataset(path, target="y")
    assert f"delimiter={mark!r}" in str(caught.value)
    with pytest.raises(ArgumentError) as caught:
        TableDataset(path, target="z", delimiter=mark)
    assert "  try " not in str(caught.value)


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_parquet_and_arrow(tmp_path: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra tables is not installed")
    from pyarrow import feather, parquet

    def write(columns: dict[str, Any]) -> Path:
        path = tmp_path / f"t.{kind}"
        table = pa.table(columns)
        parquet.write_table(table, path) if kind == "parquet" else feather.write_feather(table, path)
        return path

    words = pa.array(["u", "v", None, "u"])
    path = write({"i": [1, None, 3, 4], "f": [0.5, 1.5, 2.5, 3.5], "w": words, "d": words.dictionary_encode(),
                  "b": [True, None, False, True], "n": pa.nulls(4)})  # fmt: skip
    columns = read_columns(path)
    assert columns["i"][[0, 2, 3]].tolist() == [1, 3, 4] and np.isnan(columns["i"][1])
    assert columns["w"].tolist() == columns["d"].tolist() == ["u", "v", None, "u"]
    assert columns["b"][[0, 2]].tolist() == [1, 0] and columns["f"][np.arange(4)].tolist() == [0.5, 1.5, 2.5, 3.5]
    assert np.isnan(columns["n"]).all()
    table = TableDataset(path, target="f", features=["i", "w"], missing="drop")
    assert len(table) == 2 and table.batch(np.arange(2))[1].tolist() == [0.5, 3.5]
    with pytest.raises(DTypeError, match="'when' is neither numbers nor text"):
        read_columns(write({"when": pa.array([0], pa.timestamp("s"))}))
    content = write({"a": list(range(1000))}).read_bytes()
    for damaged in (b"", b"PAR1", content[: len(content) // 2], content[:-30] + b"\xff" * 22 + content[-8:]):
        path.write_bytes(damaged)
        with pytest.raises(LoadError, match="cannot be read"):
            read_columns(path)
    with pytest.raises(LoadError, match="cannot be opened"):
        read_columns(tmp_path / f"none.{kind}")


def test_an_arrow_file_stays_on_disk(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra tables is not installed")
    from pyarrow import feather

    rng = np.random.default_rng(0)
    numbers, wide, words = rng.normal(3, 2, 1000), rng.integers(0, 9, 1000), rng.choice(["u", "v"], 1000)
    table = pa.table({"a": numbers.astype(np.float32), "b": wide, "w": words, "t": numbers * 2})
    feather.write_feather(table, tmp_path / "t.arrow", compression="uncompressed", chunksize=300)
    mapped = TableDataset(tmp_path / "t.arrow", target="t")
    columns = read_columns(tmp_path / "t.arrow")
    assert len(columns["a"].pieces) == 4 and columns["a"].pieces[0].dtype == np.float32  # neither joined nor widened
    assert not columns["a"].pieces[0].flags.owndata and pa.total_allocated_bytes() < 8 * 1000
    plain = TableDataset({"a": numbers.astype(np.float32), "b": wide, "w": words, "t": numbers * 2}, target="t")
    for a, b in zip(mapped.coding.features, plain.coding.features, strict=True):
        assert (a.name, a.kind, a.categories) == (b.name, b.kind, b.categories)
        assert a.mean == pytest.approx(b.mean) and a.std == pytest.approx(b.std)
    rows = np.array([999, 0, 299, 300, 5, -1])
    for x, y in zip(mapped.batch(rows), plain.batch(rows), strict=True):
        assert x.dtype == y.dtype and np.allclose(x.numpy(), y.numpy(), atol=1e-5)
    assert mapped[-1][1].item() == plain[999][1].item() and len(mapped) == 1000
    parts = mapped.split([900, 100], ox.Generator(0))
    assert [len(part) for part in parts] == [900, 100]
    feather.write_feather(pa.table({"a": [1.0, np.nan, np.inf]}), tmp_path / "u.arrow", compression="uncompressed")
    with pytest.raises(LoadError, match="missing values"):
        TableDataset(tmp_path / "u.arrow")
    with pytest.raises(LoadError, match="infinite"):
        TableDataset(tmp_path / "u.arrow", missing="drop")


def test_parquet_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ArgumentError, match="not installed") as error:
        read_columns(written(tmp_path, "", "t.parquet"))
    assert install_command("tables") in str(error.value)


def test_a_column_of_too_many_categories_is_refused_before_it_fills_memory() -> None:
    names = [f"customer-{i // 2}" for i in range(30_000)]
    columns = {"name": names, "colour": ["red", "blue", "blue"] * 10_000, "y": np.arange(30_000.0)}
    with pytest.raises(ArgumentError, match="column 'name' has 15,000 different values") as caught:
        TableDataset(columns, target="y")
    shown = str(caught.value)
    assert "'customer-0'" in shown and "1,800 MB for 30,000 rows" in shown
    assert "features=[...] without 'name'" in shown and "one_hot=False" in shown and "max_categories=15000" in shown
    assert TableDataset(columns, target="y", features=["colour"]).feature_names == ["colour=blue", "colour=red"]
    numbers, codes, target = TableDataset(columns, target="y", one_hot=False)[29_999]
    assert numbers.shape == (0,) and codes.shape == (2,) and float(target) == 29_999
    # a table of others is encoded by the same coding, and held to the same bound
    few = TableDataset({name: values[:5] for name, values in columns.items()}, target="y", max_categories=3)
    assert len(few.feature_names) == 5
    with pytest.raises(ArgumentError, match="max_categories"):
        TableDataset(columns, coding=few.coding, max_categories=2)
    with pytest.raises(ArgumentError, match="column 'name'"):
        TableDataset({"name": names, "y": ["a", "b"] * 15_000}, target="y")


@rows("count", [10, 20, 600, 3000])
@rows("one_hot", [True, False])
def test_a_column_that_identifies_the_rows_is_refused(count: int, one_hot: bool) -> None:
    columns = {"id": [f"id{i}" for i in range(count)], "size": list(range(count)), "y": [2.0 * i for i in range(count)]}
    with pytest.raises(ArgumentError, match="column 'id' has another value in each row") as caught:
        TableDataset(columns, target="y", one_hot=one_hot)
    assert "drop=['id']" in str(caught.value) and "categorical=['id']" in str(caught.value)
    assert TableDataset(columns, target="y", drop=["id"], one_hot=one_hot).feature_names == ["size"]
    kept = TableDataset(columns, target="y", categorical=["id"], max_categories=count, one_hot=one_hot)
    assert [column.name for column in kept.coding.features] == ["id", "size"]
    assert all(len(part) for part in kept.split([0.5, 0.5]))  # the question is asked once
    # rows to predict are few, and may all differ
    few = {name: values[:2] for name, values in columns.items()}
    assert len(TableDataset(few, coding=kept.coding, max_categories=count, one_hot=one_hot)) == 2
    gaps = columns | {"id": [None, *columns["id"][1:]]}
    with pytest.raises(ArgumentError, match="'id' has another value in each row"):
        TableDataset(gaps, target="y", missing="fill", one_hot=one_hot)


def test_a_target_with_another_class_in_each_row_is_refused() -> None:
    columns = {"id": [f"id{i}" for i in range(60)], "x": np.arange(60.0)}
    with pytest.raises(ArgumentError, match="the target 'id' has another value in each row") as caught:
        TableDataset(columns, target="id")
    assert "categorical=['id']" in str(caught.value) and "drop" not in str(caught.value)
    assert len(TableDataset(columns, target="id", categorical=["id"]).classes) == 60
    with pytest.warns(UserWarning, match="'id' has 59 different values in 60 rows.*another target"):
        TableDataset(columns | {"id": ["id1", *columns["id"][1:]]}, target="id")
    assert len(TableDataset({name: values[:3] for name, values in columns.items()}, target="id").classes) == 3


def test_a_column_that_nearly_identifies_the_rows_is_named() -> None:
    columns = {"id": [f"id{max(i, 3)}" for i in range(100)], "y": np.arange(100.0)}
    with pytest.warns(UserWarning, match="'id' has 97 different values in 100 rows.*drop=..id.. leaves it out"):
        TableDataset(columns, target="y")
    with pytest.warns(UserWarning, match="'id' has 5 different values in 5 rows"):
        TableDataset({"id": list("abcde"), "y": np.arange(5.0)}, target="y")
    assert len(TableDataset(columns, target="y", categorical=["id"])) == 100
    assert len(TableDataset({"id": [f"id{i // 2}" for i in range(100)], "y": np.arange(100.0)}, target="y")) == 100


def test_drop_leaves_columns_out() -> None:
    columns = {"a": [1.0, 2.0], "b": [1.0, 2.0], "y": [1.0, 2.0]}
    assert TableDataset(columns, target="y", drop=["b"]).feature_names == ["a"]
    with pytest.raises(ArgumentError, match="no column 'c'"):
        TableDataset(columns, target="y", drop=["c"])
    for wrong in ({"drop": ["y"]}, {"drop": ["a"], "features": ["a"]}):
        with pytest.raises(ArgumentError, match="is to be used and dropped"):
            TableDataset(columns, target="y", **wrong)


def test_many_categories_are_encoded_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"word": [f"w{i % 50}" for i in range(500)], "x": np.arange(500.0), "y": ["a", "b"] * 250}
    ready = TableDataset(columns, target="y")
    monkeypatch.setattr("ox.data.datasets.table.LARGE", 1000)
    later = TableDataset(columns, target="y")
    assert ready._ready is not None and later._ready is None
    chosen = np.array([3, 499, 0, 3])
    for one, other in zip(ready.batch(chosen), later.batch(chosen), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes() and one.dtype == other.dtype
    assert [len(part) for part in later.split([0.8, 0.2])] == [400, 100]
