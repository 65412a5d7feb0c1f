"""What `ox predict` takes: arrays, pictures, tables, JSON; and what it says of files that do not fit."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rows import rows

from ox import train
from ox_cli.main import main

IMAGES = """
import numpy as np
from ox import nn
from ox.data import TensorDataset

defaults = {"epochs": 6, "batch_size": 16, "lr": 0.02}
labels = ["dark", "light"]
loss = nn.CrossEntropyLoss()


def data():
    random = np.random.RandomState(0)
    side = random.randint(0, 2, 160)
    images = (random.rand(160, CHANNELS, 6, 6) * 0.3 + 0.6 * side[:, None, None, None]).astype(np.float32)
    images = images * TIMES
    return TensorDataset(images[:120], side[:120]), TensorDataset(images[120:], side[120:])


def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(36 * CHANNELS, 2))
"""
TABLE = """
import numpy as np
from ox import nn
from ox.data.datasets import TableDataset

defaults = {"epochs": 8, "batch_size": 16, "lr": 0.05}
labels = ["cheap", "dear"]
loss = nn.CrossEntropyLoss()


def data():
    colours = ["red", "blue"] * 60
    size = np.random.RandomState(0).rand(120)
    kind = ["dear" if s > 0.5 else "cheap" for s in size]
    return TableDataset({"size": size, "colour": colours, "kind": kind}, target="kind").split([0.8, 0.2])


def model():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
"""


def trained(folder: Path, name: str, text: str) -> Path:
    page = folder / f"{name}.py"
    page.write_text(text)
    return train.train(page, out=folder / "runs").folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = IMAGES.replace("CHANNELS", "3").replace("TIMES", "1")
    return trained(tmp_path_factory.mktemp("images"), "shades", text)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("table"), "things", TABLE)


def said(capsys: pytest.CaptureFixture[str], *words: object) -> list[str]:
    assert main(["predict", *map(str, words)]) == 0, capsys.readouterr().err
    return [line.split()[0] for line in capsys.readouterr().out.splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["predict", *map(str, words)]) == 1
    told = capsys.readouterr().err
    assert "allow_pickle" not in told
    return told


@rows("kind", ["png", "jpg", "bmp"])
@rows(("mode", "size"), [("RGB", (6, 6)), ("RGB", (31, 20)), ("L", (6, 6)), ("RGBA", (9, 9))])
def test_pictures_become_what_the_model_takes(images: Path, tmp_path: Path, kind, mode, size, capsys) -> None:
    if (kind, mode) in (("jpg", "RGBA"), ("bmp", "RGBA")):
        mode = "RGB"
    for level, label in ((20, "dark"), (220, "light")):
        colour = level if mode == "L" else (level,) * 3 + (255,) * (mode == "RGBA")
        Image.new(mode, size, colour).save(tmp_path / f"one.{kind}")
        assert said(capsys, images, tmp_path / f"one.{kind}") == [label]


def test_a_picture_in_an_exported_file(images: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    assert main(["export", "shades.onnx", "--run", str(images)]) == 0
    Image.new("RGB", (12, 12), (230, 230, 230)).save("one.png")
    capsys.readouterr()
    assert said(capsys, "shades.onnx", "one.png") == ["light"]


def test_what_a_picture_means_is_not_guessed(tmp_path: Path, images: Path, table: Path, capsys) -> None:
    Image.new("RGB", (6, 6)).save(tmp_path / "one.png")
    for times, told in (("8 - 4", "samples from -4 to"), ("16", "samples from 0.0")):
        text = IMAGES.replace("CHANNELS", "3").replace("TIMES", times)
        run = trained(tmp_path, f"of{len(times)}", text)
        error = refused(capsys, run, tmp_path / "one.png")
        assert "ox cannot tell how the recipe scales images" in error and told in error and "np.save" in error
    assert "does not take images" in refused(capsys, table, tmp_path / "one.png")
    (tmp_path / "text.png").write_text("no picture")
    assert "is no image, or a damaged one" in refused(capsys, images, tmp_path / "text.png")
    whole = (tmp_path / "one.png").read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    assert "half.png" in refused(capsys, images, tmp_path / "half.png")


def test_tables_are_encoded_as_the_training_rows_were(table: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "new.csv").write_text("id,kind,colour,size\n7,cheap,red,0.05\n8,cheap,green,0.95\n")
    assert said(capsys, table, tmp_path / "new.csv") == ["cheap", "dear"]
    rows = [{"size": 0.05, "colour": "red"}, {"size": 0.95, "colour": "blue"}]
    for value, expected in ((rows, ["cheap", "dear"]), (rows[1], ["dear"])):
        (tmp_path / "new.json").write_text(json.dumps(value))
        assert said(capsys, table, tmp_path / "new.json") == expected


@rows(
    ("name", "text", "told"),
    [
        ("other.csv", "size,length\n1,2\n", "no column 'colour'"),
        ("empty.csv", "size,colour\n", "has no rows"),
        ("nothing.csv", "", "no header"),
        ("missing.csv", "size,colour\n0.5,red\n,red\n", "missing values"),
        ("words.csv", "size,colour\nbig,red\n", "column 'size'"),
        ("infinite.csv", "size,colour\ninf,red\n", "infinite"),
        ("ragged.csv", "size,colour\n1\n", "does not fit its header"),
        ("other.json", '[{"size": 1}]', "has no 'colour'"),
        ("shape.json", "[[1, 2], [3]]", "is not an array of numbers"),
        ("wide.json", "[[1, 2, 3, 4, 5]]", "does not fit the model"),
        ("text.json", '["a", "b", "c"]', "is not an array of numbers"),
        ("nan.json", "[[NaN, 1, 0]]", "NaN or infinity"),
        ("broken.json", '{"a": ', "is not a JSON file"),
        ("deep.json", "[" * 100_000, "is not a JSON file"),
        ("named.json", '{"a": [1, 2], "b": [1]}', "has no 'size'"),
        ("number.json", "3", "is not an array of numbers"),
        ("one.xlsx", "", "unknown file type"),
    ],
)
def test_files_that_do_not_fit(table: Path, tmp_path: Path, name: str, text: str, told: str, capsys) -> None:
    (tmp_path / name).write_text(text)
    error = refused(capsys, table, tmp_path / name)
    assert told in error and name in error


def test_numbers_of_a_page_without_a_table(images: Path, tmp_path: Path, capsys) -> None:
    text = TABLE.replace("TableDataset(", "Own(").replace(
        "def data", "def Own(columns, target):\n    from ox.data import random_split, TensorDataset\n"
        "    x = np.stack([columns['size'], columns['size'] ** 2, np.ones(120)], 1).astype(np.float32)\n"
        "    return TensorDataset(x, (columns['size'] > 0.5).astype(np.int64))\n\n\ndef data",
    ).replace(".split([0.8, 0.2])", "").replace("return Own", "whole = Own") + "\n"  # fmt: skip
    text = text.replace('target="kind")\n', 'target="kind")\n    return whole, whole\n')
    run = trained(tmp_path, "numbers", text)
    (tmp_path / "new.csv").write_text("a,b,c\n0.05,0.0025,1\n0.95,0.9,1\n")
    assert said(capsys, run, tmp_path / "new.csv") == ["cheap", "dear"]
    (tmp_path / "new.json").write_text("[0.95, 0.9, 1]")
    assert said(capsys, run, tmp_path / "new.json") == ["dear"]
    (tmp_path / "new.csv").write_text("a,b,c,kind\n0.05,0.0025,1,dear\n")
    error = refused(capsys, run, tmp_path / "new.csv")
    assert "kind (text)" in error and "without the target" in error
    (tmp_path / "new.csv").write_text("a,b,c\n0.05,,1\n")
    assert "NaN or infinity" in refused(capsys, run, tmp_path / "new.csv")
    for text, answers in (
        ("0,1,2\n0.05,0.0025,1\n0.95,0.9,1\n", ["cheap", "dear"]),  # pandas' names of columns
        ("9.5e-01,9.0e-01,1.0e+00\n0.05,0.0025,1\n", ["dear", "cheap"]),  # np.savetxt
        ("0.95,0.9,0.9\n", ["dear"]),
    ):
        (tmp_path / "new.csv").write_text(text)
        assert said(capsys, run, tmp_path / "new.csv") == answers
    for text in ("0.95,0.9,1\n0.95,x,1\n", "0.95,0.9,1\n0.95,0.9\n"):
        (tmp_path / "new.csv").write_text(text)
        error = refused(capsys, run, tmp_path / "new.csv")
        assert "has a line that is not 3 numbers" in error and "no header" in error


def test_arrays_are_looked_at_before_they_are_made(images: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    (tmp_path / "pickle.npy").write_bytes(pickle.dumps([1, 2]))
    for name in ("objects.npy", "objects.npz"):
        error = refused(capsys, images, tmp_path / name)
        assert "as a pickle" in error and "np.save" in error
    assert "is not a NumPy file" in refused(capsys, images, tmp_path / "pickle.npy")
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (90000, 90000), }"
    (tmp_path / "absurd.npy").write_bytes(header.ljust(127) + b"\n")
    assert "has fewer bytes than its header declares" in refused(capsys, images, tmp_path / "absurd.npy")
    monkeypatch.setattr("ox.data.datasets.npy.LIMIT", 1 << 21)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open(
        "x.npy", "w", force_zip64=True
    ) as member:  # fmt: skip
        for _ in range(5):
            member.write(bytes(1 << 20))
    error = refused(capsys, images, tmp_path / "bomb.npz")
    assert "is too large when it is unpacked" in error and "at most 2 MB" in error and "5 MB" in error
    whole = np.zeros((1, 3, 6, 6), np.float32)
    whole[0, 0, 0, 0] = np.nan
    np.save(tmp_path / "nan.npy", whole)
    assert "NaN or infinity" in refused(capsys, images, tmp_path / "nan.npy")
    np.save(tmp_path / "order.npy", np.asfortranarray(np.full((2, 3, 6, 6), 0.9)))
    assert said(capsys, images, tmp_path / "order.npy") == ["light", "light"]
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    assert "does not fit the model" in refused(capsys, images, tmp_path / "words.npy")
