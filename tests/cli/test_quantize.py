"""`ox quantize`: the data of the recipe, the accuracy on its validation data, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_dynamic
from rows import rows

import ox
from ox_cli.main import main

RECIPE = """
import numpy as np
import ox
from ox import nn
from ox.data import TensorDataset

defaults = {"epochs": 2, "batch_size": 32, "lr": 0.1}
inputs = {"point": "two coordinates"}
loss = nn.LOSS()


def data():
    points = np.random.RandomState(0).uniform(-1, 1, (480, 2)).astype(np.float32)
    target = TARGET
    return TensorDataset(points[:300], target[:300]), TensorDataset(points[300:], target[300:])


def model():
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, OUT))
"""
SIDES = {"LOSS": "CrossEntropyLoss", "TARGET": "(points[:, 0] > points[:, 1]).astype(np.int64)", "OUT": "2"}
SUMS = {"LOSS": "MSELoss", "TARGET": "points.sum(1, keepdims=True)", "OUT": "1"}


def exported(folder: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, str]) -> Path:
    monkeypatch.chdir(folder)
    text = RECIPE
    for word, value in words.items():
        text = text.replace(word, value)
    (folder / "points.py").write_text(text)
    assert main(["train", "points.py"]) == 0
    assert main(["export", "points.onnx"]) == 0
    return folder / "points.onnx"


def test_a_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = exported(tmp_path, monkeypatch, SIDES)
    capsys.readouterr()
    assert main(["quantize", "points.onnx", "--samples", "64", "--min-accuracy", "0.8"]) == 0
    said = capsys.readouterr().out
    assert "points.onnx → points.int8.onnx · int8 · calibrated by minmax · 3 of 3 layers" in said
    before, after = map(float, re.search(r"accuracy +([\d.]+) % → ([\d.]+) % +\(180 valid", said).groups())  # type: ignore[union-attr]
    assert abs(before - after) < 5
    assert re.search(r"size .*×\nlatency .*×.*\ngolden +3 samples drawn again, tolerance", said)
    assert "next: ox serve points.int8.onnx" in said
    assert main(["eval", "points.int8.onnx"]) == 0
    correct = int(re.search(r"(\d+) of 180 correct", capsys.readouterr().out).group(1))  # type: ignore[union-attr]
    assert correct / 180 == pytest.approx(after / 100, abs=6e-4)
    assert main(["quantize", "points.onnx", "-o", "b.onnx", "--min-accuracy", "1", "--scheme", "int4"]) == 1
    assert re.search(r"int4 model is less accurate[^~]*b\.onnx was not written", capsys.readouterr().err)
    assert not (tmp_path / "b.onnx").exists()
    quantize_dynamic(path, "theirs.onnx")
    assert main(["quantize", "--adopt", "theirs.onnx", "--run", "points-0001", "--min-accuracy", "0.8"]) == 0
    assert re.search(r"3 golden samples drawn again, tolerance [^~]*accuracy \d\d\.\d %", capsys.readouterr().out)


def test_a_regression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    exported(tmp_path, monkeypatch, SUMS)
    capsys.readouterr()
    assert main(["quantize", "points.onnx", "--scheme", "float16"]) == 0
    assert re.search(r"loss +[\d.e-]+ → [\d.e-]+ +\(180 valid", capsys.readouterr().out)
    assert main(["quantize", "points.onnx", "--scheme", "float16", "--min-accuracy", "0.5"]) == 1
    assert "has no accuracy" in capsys.readouterr().err


def test_a_file_of_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ox.export.save(ox.nn.Linear(64, 64), "plain.onnx", np.ones((4, 64), np.float32), golden=None)
    assert main(["quantize", "plain.onnx", "--scheme", "int4"]) == 0
    said = capsys.readouterr().out
    assert "int4 · 1 of 1 layers" in said and "accuracy" not in said and "latency" not in said
    assert any(t.data_type == onnx.TensorProto.INT4 for t in onnx.load("plain.int4.onnx").graph.initializer)
    assert main(["quantize", "plain.onnx"]) == 1
    assert re.search(r"int8 needs calibration data[^~]*int8-dynamic", capsys.readouterr().err)


@rows(
    ("options", "said"),
    [
        (["--mixed"], "--mixed needs --min-accuracy"),
        (["--adopt", "-o", "b.onnx"], "--adopt changes a file in place"),
        (["--run", "a", "--recipe", "b"], "both name a recipe"),
        (["--adopt", "--scheme", "int4"], "--scheme is for files that ox quantizes"),
        (["--adopt", "--samples", "8"], "--samples is for files that ox quantizes"),
        (["--block-size", "64"], "--block-size is for int4, and the scheme is int8"),
        (["--scheme", "int8-dynamic", "--method", "minmax"], "--method is for int8, and the scheme is int8-dynamic"),
        (["--scheme", "int4", "--method", "entropy"], "--method is for int8, and the scheme is int4"),
    ],
)
def test_options_that_do_not_fit(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", "a.onnx", *options]) == 2
    assert said in capsys.readouterr().err
