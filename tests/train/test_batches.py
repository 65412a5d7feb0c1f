"""Batches that are no tuples: dicts, named tuples, dataclasses, nested ones, with strings and None in them."""

from __future__ import annotations

import json
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn, train
from ox.data import Dataset, default_collate
from ox.data.batch_map import map_tensors
from ox.errors import DTypeError, RecipeError, TrainError
from ox.train.batch import batch_size, describe, single_sample, target_of, tensors

PAGE = """
import numpy as np
from ox import nn
from ox.data import Dataset

defaults = {{"epochs": 2, "batch_size": 8, "lr": 0.05}}
labels = ["left", "right"]
metrics = ["f1"]
loss = nn.CrossEntropyLoss()


class Points(Dataset):
    def __init__(self, first, count):
        self.first, self.count = first, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError
        random = np.random.RandomState(self.first + index)
        x = random.randn(2).astype(np.float32)
        return {sample}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, {forward}):
        return self.layer({use})


def data():
    return Points(0, 64), Points(100, 24), Points(200, 24)


def model():
    return Net()
"""
Pair = namedtuple("Pair", "x y")


@dataclass
class Named:
    x: Any
    label: Any
    note: Any = None


def page(tmp_path: Path, sample: str, forward: str = "x", use: str = "x", more: str = "") -> Path:
    path = tmp_path / "named.py"
    path.write_text(PAGE.format(sample=sample, forward=forward, use=use) + more)
    return path


SIDE = "int(x.sum() > 0)"
WHOLE = f"{{'x': x, 'label': {SIDE}, 'path': str(index), 'box': None}}"


@rows(
    ("sample", "forward", "use"),
    [
        (WHOLE, "x", "x"),
        (f"{{'first': x[:1], 'second': x[1:], 'y': {SIDE}}}", "second, first", "ox.cat([first, second], 1)"),
        (f"({{'a': x[:1], 'b': (x[1:],)}}, {SIDE})", "inputs", "ox.cat([inputs['a'], inputs['b'][0]], 1)"),
        (f"{{'a': x[:1], 'b': x[1:], 'target': {SIDE}}}", "inputs", "ox.cat([inputs['a'], inputs['b']], 1)"),
        (f"{{'point': x, 'target': {SIDE}}}", "x", "x"),
        (f"Pair(x, {SIDE})", "x", "x"),
        (f"Named(x, {SIDE}, 'a note')", "x", "x"),
    ],
    ids=["dict", "two inputs", "nested", "forward takes the dict", "one input", "namedtuple", "dataclass"],
)  # fmt: skip
def test_a_batch_with_names_reaches_model_and_loss(tmp_path: Path, sample: str, forward: str, use: str) -> None:
    head = "import ox\nfrom collections import namedtuple\nfrom dataclasses import dataclass\n"
    head += "Pair = namedtuple('Pair', 'x y')\n\n@dataclass\nclass Named:\n    x: list\n    label: int\n    n: str\n"
    path = page(tmp_path, sample, forward, use)
    path.write_text(head + path.read_text())
    run = train.train(path, out=tmp_path / "runs")
    assert run.result is not None
    assert run.result["best"]["validation_f1"] > 0.5
    assert run.result["held_back"]["count"] == 24


def test_an_own_step_gets_the_dict_as_it_is(tmp_path: Path) -> None:
    own = """
def collate(samples):
    from ox.data import default_collate
    batch = default_collate(samples)
    return batch | {"size": len(samples)}


def step(model, batch):
    assert isinstance(batch, dict) and batch["path"] and batch["box"] is None and batch["size"] == len(batch["x"])
    outputs = model(batch["x"])
    return loss(outputs, batch["label"]), outputs
"""
    run = train.train(page(tmp_path, WHOLE, more=own), out=tmp_path / "runs")
    assert run.result is not None and run.result["best"]["validation_accuracy"] > 0.5


def test_augment_gives_a_dict_back(tmp_path: Path) -> None:
    own = "\ndef augment(batch, generator):\n    return batch | {'x': batch['x'] * 1.0}\n"
    run = train.train(page(tmp_path, WHOLE, more=own), out=tmp_path / "runs", epochs=1)
    assert run.result is not None


def test_dicts_are_evaluated_predicted_exported_and_reported(tmp_path: Path, monkeypatch, capsys) -> None:
    from ox_cli.main import main

    monkeypatch.chdir(tmp_path)
    sample = f"{{'second': x[1:], 'first': x[:1], 'y': {SIDE}, 'path': str(index)}}"
    path = page(tmp_path, sample, "first, second", "ox.cat([first, second * 1], 1)")
    path.write_text("import ox\n" + path.read_text())
    assert main(["train", str(path)]) == 0
    assert main(["export", "model.onnx"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    for model in ("runs/named-0001", "model.onnx"):
        assert main(["eval", model, "--json", "--recipe", str(path)]) == 0, capsys.readouterr().err
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[0]["count"] == 24
    assert found[0]["correct"] == found[1]["correct"]
    for model in ("runs/named-0001", "model.onnx"):
        assert main(["predict", model, "held-back:3", "--recipe", str(path), "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["label"] == second["label"] and first["truth"] == second["truth"]
    assert main(["runs", "report", "named-0001"]) == 0


def test_a_dict_without_a_target_says_what_it_wants(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="names no target") as caught:
        train.train(page(tmp_path, "{'x': x}"), out=tmp_path / "runs")
    assert "'label'" in str(caught.value) and "'x': float32 [8, 2]" in str(caught.value)
    with pytest.raises(RecipeError, match="wants 'x2'"):
        train.train(page(tmp_path, WHOLE, "x, x2"), out=tmp_path / "runs")
    with pytest.raises(RecipeError, match="not those that the model's forward takes"):
        train.train(page(tmp_path, f"{{'a': x, 'b': x, 'y': {SIDE}}}", "c, d", "c"), out=tmp_path / "runs")


def test_nan_and_a_bad_sample_are_found_in_a_dict(tmp_path: Path) -> None:
    sample = WHOLE.replace("'x': x", "'x': x * (np.nan if index == 5 else 1)")
    with pytest.raises(TrainError, match="nan") as caught:
        train.train(page(tmp_path, sample), out=tmp_path / "runs")
    assert "x of the batch contains NaN" in str(caught.value) and "index 5" in str(caught.value)
    sample = WHOLE.replace(SIDE, f"7 if index == 9 else {SIDE}")
    with pytest.raises(TrainError, match="cannot take a sample") as caught:
        train.train(page(tmp_path, sample), out=tmp_path / "runs")
    assert "index 9" in str(caught.value)


def test_a_trainer_of_dicts() -> None:
    class Dicts(Dataset):
        def __getitem__(self, index: int) -> dict[str, Any]:
            x = np.random.RandomState(index).randn(3).astype(np.float32)
            return {"input": x, "target": int(x[0] > 0)}

        def __len__(self) -> int:
            return 40

    ox.manual_seed(0)
    result = train.Trainer(nn.Linear(3, 2), nn.CrossEntropyLoss(), None, Dicts(), lr=0.1, epochs=6).fit()
    assert result["best"]["accuracy"] > 0.8


def test_collating_dataclasses_and_none() -> None:
    batch = default_collate([Named(np.zeros(2), 1), Named(np.ones(2), 0)])
    assert (
        isinstance(batch, Named) and batch.x.shape == (2, 2) and batch.label.tolist() == [1, 0] and batch.note is None
    )
    with pytest.raises(DTypeError, match="None cannot be collated into a batch") as caught:
        default_collate([(1, None), (1, 2)])
    assert "number 0 of the batch" in str(caught.value)


def test_parts_of_batches() -> None:
    x, y = ox.zeros(4, 3), ox.arange(4)
    named = Named(x, y, ["a", "b", "c", "d"])
    for batch in ((x, y), [x, y], {"x": x, "y": y}, Pair(x, y), named, ({"a": x, "b": (x, None)}, y)):
        assert batch_size(batch) == 4
        assert target_of(batch) is y
        one = single_sample(batch, 2, 4)
        assert type(one) is type(batch) and batch_size(one) == 1
        assert all(t.shape[0] == 1 for _, t in tensors(one))
        assert all(t.shape[0] == 8 for _, t in tensors(map_tensors(lambda t: ox.cat([t, t]), batch)))
    assert single_sample(named, 2, 4).note == ["c"]
    assert [name for name, _ in tensors(({"a": x, "b": (x, None)}, y))] == ["0.a", "0.b.0", "1"]
    # images of other sizes, boxes of each: a list with an entry a sample
    ragged = ([ox.zeros(3, 5, 5), ox.zeros(3, 4, 4)], [{"boxes": ox.zeros(7, 4)}, {"boxes": ox.zeros(1, 4)}])
    assert batch_size(ragged) == 2 and single_sample(ragged, 0, 2) is None
    assert batch_size({"a": None, "b": "text"}) == 1 and batch_size(x) == 4 and target_of(x) is None
    assert describe({"x": x, "path": ["a"]}) == "{'x': float32 [4, 3], 'path': [str]}"


def test_data_of_another_type_than_the_model_names_the_place_to_change() -> None:
    """float64 is what scikit-learn gives."""
    x = np.random.RandomState(0).randn(40, 3)
    y = (x.sum(1) > 0).astype(np.int64)
    for data, wanted in [
        (x, '.astype("float32") in data(), where tensor 0 of the batch is made: it is float64'),
        ((x * 10).astype(np.uint8), '.astype("float32") in data(), where tensor 0 of the batch is made: it is uint8'),
    ]:
        with pytest.raises(DTypeError) as caught:
            train.Trainer(nn.Linear(3, 2), nn.CrossEntropyLoss(), None, (data, y), epochs=1).fit()
        assert str(caught.value.hint).startswith(wanted)
