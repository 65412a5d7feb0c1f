"""What the user wants of a proof, and what the file says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ox
from ox.errors import ArgumentError, ExportError
from ox.graph.reader.model_file import metadata_of

ROWS = np.random.default_rng(0).normal(size=(8, 6, 4)).astype(np.float32)
DIMS: dict[str, list[Any]] = {"x": ["batch", ox.Dim("n", max=500), 4]}


def save(path: Path, function: Any = lambda x: x * 2, **options: Any) -> Any:
    return ox.export.save(function, path / "m.onnx", ROWS, dims=DIMS, input_names=["x"], **options)


class Drifting:
    """Gives more at each call outside of a recording: no file can agree with it."""

    def __init__(self, by: float) -> None:
        self.by, self.calls = by, 0

    def __call__(self, x: Any) -> Any:
        if not ox.onnx.is_in_onnx_export():
            self.calls += 1
        return x * 2 + self.by * self.calls if self.calls else x * 2 + self.by * 0


def test_the_file_says_what_was_proven(tmp_path: Path) -> None:
    report = save(tmp_path)
    model = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(model, full_check=True)
    said = json.loads(metadata_of(model)["ox.proof"])
    assert said["runtime"] == report.proof.runtime and said["failed"] == []
    assert [(row["batch"], row["sizes"], row["max_abs"]) for row in said["rows"]] == [
        (row.batch, dict(row.sizes), row.max_abs) for row in report.rows
    ]
    again = ox.export.save(ox.export.load(tmp_path / "m.onnx"), tmp_path / "again.onnx", ROWS)
    entries = [entry.key for entry in onnx.load(tmp_path / "again.onnx").metadata_props]
    assert entries.count("ox.proof") == 1 and again.proof.rows


def test_with_weights_beside_the_file(tmp_path: Path) -> None:
    ox.export.save(ox.nn.Linear(64, 64), tmp_path / "m.onnx", np.ones((3, 64), np.float32), external_above=0)
    assert (tmp_path / "m.onnx.data").exists()
    assert "ox.proof" in metadata_of(onnx.load(tmp_path / "m.onnx"))
    assert ox.export.prove(tmp_path / "m.onnx").rows


def test_further_sizes(tmp_path: Path) -> None:
    report = save(tmp_path, proof={"sizes": [{"n": 321}, {"n": 5, "batch": 9}]})
    assert [(row.batch, row.sizes["n"]) for row in report.rows][-2:] == [(2, 321), (9, 5)]
    for wrong in ({"m": 3}, {"n": 501}):
        with pytest.raises(ArgumentError, match="the proof cannot be at these sizes"):
            save(tmp_path, proof={"sizes": [wrong]})


def test_tolerances(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="another 'output' than the model"):
        save(tmp_path, Drifting(1e-3), golden=None)
    report = save(tmp_path, Drifting(1e-3), golden=None, proof={"atol": 1.0})
    assert 1e-3 < max(row.max_abs for row in report.rows) < 1 <= report.rows[0].allowed
    with pytest.raises(ExportError, match="another 'output' than the model"):
        save(tmp_path, lambda x: x.exp().sum(-1).log(), proof={"atol": 0, "rtol": 0})


def test_only_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="gives another 'output' than the model"):
        report = save(tmp_path, Drifting(1e-2), golden=None, proof="warn")
    assert len(report.proof.failed) == len(report.rows)
    said = json.loads(metadata_of(onnx.load(tmp_path / "m.onnx"))["ox.proof"])
    assert said["failed"] == list(report.proof.failed)
    assert report.proof.failed[0] in str(report)


@pytest.mark.parametrize("wrong", ["never", {"tolerance": 1}, {"atol": -1}, {"rtol": "much"}, 3])
def test_no_such_proof(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ArgumentError):
        save(tmp_path, proof=wrong)


def test_sizes_that_no_memory_holds(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the memory is not enough") as caught:
        ox.export.save(
            lambda x: x * 2,
            tmp_path / "m.onnx",
            np.ones((4, 6), np.float32),
            input_names=["x"],
            dims={"x": ["batch", "n"]},
            proof={"sizes": [{"n": 10**15}]},
        )
    assert "1000000000000000" in str(caught.value.got)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_example_that_proves_nothing(tmp_path: Path, value: float) -> None:
    """Golden samples are of other numbers, and change nothing of that."""
    rows = np.ones((8, 8), np.float32)
    with pytest.raises(ExportError, match="nothing can be proven"):
        ox.export.save(lambda x: x * 2, tmp_path / "m.onnx", rows * value)
    assert not (tmp_path / "m.onnx").exists()
    rows[0] = value
    report = ox.export.save(lambda x: x * 2, tmp_path / "m.onnx", rows)  # of one row of eight it may be meant
    assert len(report.rows) == 3
