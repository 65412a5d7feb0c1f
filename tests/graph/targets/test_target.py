"""What the file for each target contains, and that ONNX Runtime gives the model's numbers for it."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from embedded_models import export

import ox
from ox import nn
from ox.errors import ArgumentError
from ox.graph.targets import TARGETS
from ox_cli.export import Target
from ox_cli.main import main

# what a runtime lacks, or runs wrongly
LACKS = {
    "iree": {"STFT", "GRU", "Scan"},
    "mnn": {"STFT"},
    "ncnn": {"STFT"},
    "opencv": {"STFT", "ScatterElements"},
    "openvino": {"STFT"},
    "tvm": {"STFT", "RNN", "GRU", "LSTM", "Scan", "Range"},
}
# those that are written otherwise for some target; `make embed` exports all fifteen
CHANGED = (
    "detector", "LSTM", "KV-cache decoder", "GNN", "diffusion U-Net", "RMSNorm/GQA decoder", "GRU", "VAE decoder",
    "audio front end",
)  # fmt: skip
NEWER = {"RMSNormalization", "GroupNormalization", "Gelu", "Mish"}  # than opset 17


@pytest.mark.parametrize("target", TARGETS)
def test_the_models(tmp_path: Path, target: str) -> None:
    opset = TARGETS[target].opset
    for name in CHANGED:
        report = export(name, tmp_path / "m.onnx", target=target)
        model = onnx.load(tmp_path / "m.onnx")
        kinds = {node.op_type for node in model.graph.node}
        assert report.opset == opset and not model.functions, name
        assert all(row.max_abs <= row.allowed and row.runtime.startswith("ONNX Runtime") for row in report.rows), name
        assert not kinds & (LACKS[target] | (NEWER if opset == 17 else set())), name
        assert {entry.key: entry.value for entry in model.metadata_props}["ox.target"] == target
        constants = {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
        for node in model.graph.node:
            # without arithmetic on sizes; that of a graph is the only one left
            assert node.op_type != "Reshape" or node.input[1] in constants, (name, node.name)
            assert node.op_type != "Split" or opset > 17 or node.input[1] in constants, (name, node.name)
            assert node.op_type != "Resize" or any(a.name == "mode" for a in node.attribute), name


def test_the_command_line_names_them() -> None:
    assert [target.value for target in Target] == sorted(TARGETS)


def test_it_is_no_target() -> None:
    with pytest.raises(ArgumentError, match="there is no target 'tract'") as caught:
        ox.export.save(nn.Linear(2, 3), "m.onnx", np.ones((3, 2), np.float32), target="tract")
    assert "iree" in str(caught.value.expected)


def test_norms_that_have_no_product_before_them_stay(tmp_path: Path) -> None:
    """A batch norm that a convolution takes up goes, one behind a ReLU stays an operator."""
    export("CNN", tmp_path / "m.onnx", target="mnn")
    kinds = collections.Counter(node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node)
    assert kinds["BatchNormalization"] == 1


def test_sums_behind_a_convolution(tmp_path: Path) -> None:
    """OpenCV adds to a convolution only what has its sizes."""
    export("diffusion U-Net", tmp_path / "m.onnx", target="opencv")
    nodes = onnx.load(tmp_path / "m.onnx").graph.node
    convolved = {node.output[0] for node in nodes if node.op_type == "Conv"}
    readers = [node.op_type for node in nodes if set(node.input) & convolved]
    assert "Add" not in readers and "Sub" in readers


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    export("GroupNorm net", "m.onnx")
    assert main(["convert", "m.onnx", "iree.onnx", "--target", "iree"]) == 0
    assert "opset 17" in capsys.readouterr().out
    assert "GroupNormalization" not in {node.op_type for node in onnx.load("iree.onnx").graph.node}
    assert main(["export", "step.onnx", "--train", "--target", "iree"]) == 2
    assert "a target is for inference" in capsys.readouterr().err


class Recurrent(nn.Module):
    """Two layers, both of which a target may write as a Scan, with values of one name and other ranks."""

    def __init__(self, second: type[nn.Module]) -> None:
        super().__init__()
        self.first = nn.LSTM(4, 4, batch_first=True, proj_size=2)
        self.second = second(2, 5, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x)[0])[0]


@pytest.mark.parametrize("second", [nn.GRU, nn.LSTM, nn.RNN])
def test_one_recurrent_layer_after_another(tmp_path: Path, second: type[nn.Module]) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3, 4)).astype(np.float32)
    for target in ("tvm", "iree"):
        report = ox.export.save(Recurrent(second), tmp_path / "m.onnx", x, target=target)
        assert all(row.max_abs <= row.allowed for row in report.rows), target
