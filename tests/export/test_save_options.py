"""Wrong options of `ox.export.save`: one clear error each, and no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox
from ox.errors import ArgumentError, ExportError

X = np.ones((4, 3), np.float32)

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "axes of nothing": ({"dynamic_axes": {"imput": {0: "b"}}}, "dynamic_axes names 'imput'"),
    "opset as text": ({"opset": "17"}, "opset '17' is out of range"),
    "opset as fraction": ({"opset": 17.5}, "opset 17.5 is out of range"),
    "sizes of the proof": ({"proof": {"sizes": {"batch": 3}}}, "the sizes of a proof"),
    "no rows in the proof": ({"proof": {"sizes": [{"batch": 0}]}}, "the sizes of a proof"),
    "metadata": ({"metadata": {"epochs": 3}}, "metadata are texts"),
    "bytes as text": ({"external_above": "1GB"}, "a number of bytes"),
    "optimization": ({"optimize": True}, "no optimization 'True'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_an_error(tmp_path: Path, name: str) -> None:
    options, what = WRONG[name]
    with pytest.raises((ArgumentError, ExportError)) as caught:
        ox.export.save(lambda x: x * 2, tmp_path / "m.onnx", X, **options)
    assert what in caught.value.what
    assert not list(tmp_path.iterdir())


def test_axes_of_outputs_are_none_of_inputs(tmp_path: Path) -> None:
    axes = {"x": {0: "b"}, "output": {0: "b"}}
    assert ox.export.save(lambda x: x * 2, tmp_path / "m.onnx", X, dynamic_axes=axes).dims == "x [b, 3] → output [b, 3]"


def test_one_size_has_one_declaration(tmp_path: Path) -> None:
    dims = {"x": [ox.Dim("b", max=8), 3], "y": [ox.Dim("b", max=9), 3]}
    with pytest.raises(ArgumentError, match="declared twice"):
        ox.export.save(lambda x, y: x + y, tmp_path / "m.onnx", (X, X), dims=dims)


def test_an_example_that_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="NaN for every example"):
        ox.export.save(lambda x: x * 2, tmp_path / "m.onnx", X * np.nan, golden=None)
    ox.export.save(lambda x: x * 2, tmp_path / "m.onnx", X * np.nan, golden=None, proof="warn")


def test_no_size_is_fixed_to_nothing(tmp_path: Path) -> None:
    ox.export.save(lambda x: x * 2, tmp_path / "m.onnx", X)
    with pytest.raises(ArgumentError, match="1 at least"):
        ox.export.convert(tmp_path / "m.onnx", tmp_path / "n.onnx", fix={"batch": 0})
    assert not (tmp_path / "n.onnx").exists()
