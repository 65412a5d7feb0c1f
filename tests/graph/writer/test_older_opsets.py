"""Operators in the words of an older opset, run by ONNX Runtime at sizes that no recording has seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from rows import rows

import ox
from ox.errors import ExportError
from ox.vision.ops import roi_align

F = ox.nn.functional
BOXES = [[0.0, 1, 1, 6, 7], [0, 0, 2, 3, 5]]


def grid(x: Any, corners: bool, mode: str = "bilinear") -> Any:
    theta = ox.tensor([[[0.813, 0.307, 0.1127], [-0.2143, 1.0917, 0.0179]]]).expand(x.shape[0], -1, -1)
    return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=corners), mode=mode, align_corners=corners)


def volume(x: Any) -> Any:
    theta = ox.tensor([[[0.8, 0.3, 0.1, 0.2], [-0.2, 1.1, 0.0, 0.1], [0.3, 0.0, 0.9, -0.1]]])
    return F.affine_grid(theta.expand(x.shape[0], -1, -1), (x.shape[0], 1, 2, *x.shape[2:]), align_corners=True)


def places(x: Any, channel: int) -> Any:
    """What is where a channel is positive."""
    return x[:, 0, 0, 0][(x[:, channel, 1, 1] > -0.5).nonzero(as_tuple=True)[0]]


# name -> function of images [batch, 2, h, w], opset, operators that the file must not have
OLDER: dict[str, tuple[Callable[[Any], Any], int, set[str]]] = {
    "triu": (lambda x: x.triu(1), 13, {"Trilu"}),
    "tril of whole numbers": (lambda x: (x * 9).long().tril(-1), 13, {"Trilu"}),
    "tril of truth values": (lambda x: (x > 0).tril(), 13, {"Trilu"}),
    "a diagonal that is computed": (lambda x: x.tril(x.shape[2] - 4) + x.triu(x.shape[3] // 4), 13, {"Trilu"}),
    "pads that are computed": (lambda x: F.pad(x, (0, 9 - x.shape[3], x.shape[2] // 2, 1), value=2.0), 13, set()),
    "negative pads": (lambda x: F.pad(x, (0, 0, -(x.shape[2] // 4), 1)), 13, set()),
    "a grid": (lambda x: grid(x, False), 16, {"AffineGrid"}),
    "a grid between corners": (lambda x: grid(x, True), 16, {"AffineGrid"}),
    "a grid, cubic": (lambda x: grid(x, False, "bicubic"), 17, {"AffineGrid"}),
    "a grid, nearest": (lambda x: grid(x, False, "nearest"), 16, {"AffineGrid"}),
    "a grid of volumes": (volume, 13, {"AffineGrid"}),
    "places along one axis": (lambda x: ox.cat([places(x, 0), places(x, 1)]), 13, set()),
    "places along the second axis": (lambda x: (x[0, 0] > 0.5).nonzero(as_tuple=True)[1], 17, set()),
    "the second of two parts": (lambda x: x.tensor_split(2, 2)[1], 17, set()),
    "regions": (lambda x: roi_align(x, ox.tensor(BOXES), 2, sampling_ratio=2), 13, set()),
}


@rows("name", OLDER)
def test_older_words(tmp_path: Path, name: str) -> None:
    function, opset, gone = OLDER[name]
    example = np.random.default_rng(0).normal(size=(4, 2, 8, 8)).astype(np.float32)
    dims = {"x": ["batch", 2, ox.Dim("h", min=4), ox.Dim("w", min=4, max=9)]}
    path = tmp_path / "m.onnx"
    report = ox.export.save(function, path, example, input_names=["x"], dims=dims, opset=opset)
    assert report.opset == opset and report.proof.runtime.startswith("ONNX Runtime")
    model = onnx.load(path)
    assert not gone & {node.op_type for node in model.graph.node}
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(path)
    for shape in ((1, 2, 5, 9), (3, 2, 11, 4)):
        x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        (got,), expected = session.run(None, {"x": x}), function(ox.from_numpy(x)).numpy()
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


REFUSED: dict[str, tuple[Callable[[Any], Any], int, str]] = {
    "half pixels of regions": (
        lambda x: roi_align(x, ox.tensor(BOXES), 2, sampling_ratio=2, aligned=True),
        13,
        "coordinate_transformation_mode 'half_pixel' in opset 13",
    ),
    "the largest of what meets": (
        lambda x: x.scatter_reduce(2, (x > 0).long(), x, "amax"),
        17,
        "ScatterElements has no reduction 'max' in opset 17",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_older_opset_cannot_say(tmp_path: Path, name: str) -> None:
    function, opset, says = REFUSED[name]
    with pytest.raises(ExportError, match=says):
        ox.export.save(function, tmp_path / "m.onnx", np.ones((4, 2, 8, 8), np.float32), opset=opset)


def test_numbers_that_became_attributes_are_left_out(tmp_path: Path) -> None:
    """ONNX Runtime warns of what no operator reads."""
    x = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
    ox.export.save(lambda x: x.mean(1).amax(-1), tmp_path / "m.onnx", x, opset=13)
    graph = onnx.load(tmp_path / "m.onnx").graph
    read = {name for node in graph.node for name in node.input}
    assert all(set(node.output) & read for node in graph.node if node.op_type == "Constant")


KINDS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")


@rows("kind", KINDS)
@rows("axes", [None, np.zeros(0, np.int64)], ids=["left out", "empty"])
def test_reductions_over_no_axes(tmp_path: Path, kind: str, axes: Any) -> None:
    helper, numbers = onnx.helper, [] if axes is None else [onnx.numpy_helper.from_array(axes, "axes")]
    node = helper.make_node(f"Reduce{kind}", ["x", *(n.name for n in numbers)], ["y"], noop_with_empty_axes=1)
    ends = [[helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3])] for name in "xy"]
    model = helper.make_model(
        helper.make_graph([node], "g", *ends, numbers), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    onnx.save(model, tmp_path / "m.onnx")
    x = np.array([[2, 3, 0.5], [4, 0.25, 1.5]], np.float32) * (1 if kind == "LogSum" else -1)
    ox.export.convert(tmp_path / "m.onnx", tmp_path / "older.onnx", opset=13, inputs=x)
    wanted, found = (ort.InferenceSession(tmp_path / name).run(None, {"x": x})[0] for name in ("m.onnx", "older.onnx"))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
