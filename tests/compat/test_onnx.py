"""`ox.onnx.export`: PyTorch's arguments lead to `ox.export.save`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rows import rows

import ox
from ox import nn
from ox.core import warn_once
from ox.errors import ArgumentError

onnx = pytest.importorskip("onnx")


class Two(nn.Module):
    def forward(self, a: ox.Tensor, b: ox.Tensor) -> ox.Tensor:
        return a.relu() + b


def shapes(path: Path) -> dict[str, list[Any]]:
    graph = onnx.load(path).graph
    return {
        info.name: [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]
        for info in (*graph.input, *graph.output)
    }


def test_names_and_dynamic_axes(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    ox.onnx.export(
        nn.Sequential(nn.Linear(3, 4), nn.ReLU()), ox.ones(5, 3), path, export_params=True, do_constant_folding=True,
        input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "rows"}, "y": {0: "rows"}}, opset_version=17,
    )  # fmt: skip
    assert shapes(path) == {"x": ["rows", 3], "y": ["rows", 4]}
    assert onnx.load(path).opset_import[0].version == 17


def test_without_dynamic_axes_every_size_is_fixed(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    ox.onnx.export(Two(), (ox.ones(2, 3), ox.ones(2, 3)), str(path))
    assert shapes(path) == {"a": [2, 3], "b": [2, 3], "output": [2, 3]}


@pytest.mark.parametrize("kwargs", [None, {"a": ox.ones(2, 3), "b": ox.ones(2, 3)}])
def test_inputs_by_name(tmp_path: Path, kwargs: dict[str, Any] | None) -> None:
    path = tmp_path / "x.onnx"
    args = () if kwargs else ({"a": ox.ones(2, 3), "b": ox.ones(2, 3)},)
    ox.onnx.export(Two(), args, path, kwargs=kwargs, dynamic_axes={"a": [0], "b": {-2: "batch"}})
    assert shapes(path)["a"] == shapes(path)["b"] == shapes(path)["output"] == ["batch", 3]


def test_an_opset_of_old_is_not_written_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warn_once, "_warned", set())
    with pytest.warns(UserWarning, match="opset_version=11 changes nothing: none below 13 is written"):
        ox.onnx.export(nn.ReLU(), ox.ones(2), tmp_path / "x.onnx", opset_version=11)
    assert onnx.load(tmp_path / "x.onnx").opset_import[0].version >= 21


@rows(
    ("options", "message"),
    [
        ({"f": None}, "an export needs a file"),
        ({"nothing": 1}, "has no argument nothing"),
        ({"dynamic_shapes": {"nothing": None}}, "dynamic_shapes does not fit the inputs"),
        ({"training": ox.onnx.TrainingMode.TRAINING}, "models are written in eval mode"),
        ({"input_names": ["a", "b"]}, "more names than inputs"),
        ({"dynamic_axes": {"input": {3: "x"}}}, "dynamic_axes names dimension 3 of input"),
        ({"args": (ox.ones(2), {"b": ox.ones(2)})}, "by position or by name, not both"),
    ],
)
def test_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    options = {"model": nn.ReLU(), "args": ox.ones(2), "f": tmp_path / "x.onnx", **options}
    with pytest.raises(ArgumentError, match=message):
        ox.onnx.export(**options)
    assert not (tmp_path / "x.onnx").exists()
