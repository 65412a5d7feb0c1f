"""Operators that an older opset writes by rank, in subgraphs of files that state no types inside: ONNX Runtime gives
the same numbers for the file of the older opset, at other sizes too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from rows import rows

import ox
from ox.errors import ExportError

RANDOM = np.random.default_rng(0)
NUMBERS: dict[str, Any] = {
    "six": RANDOM.standard_normal(6).astype(np.float32),
    "factors": np.array([2, 1.5], np.float32),
    "last": np.array([2, 3]),
    "nothing": np.array([0]),
    "all": np.array([True]),
    "steps": np.array(2),
}
# nodes from "r" to "n", which keep the sizes [rows, 6, 2, 2], and the opset of the file
KINDS: dict[str, tuple[list[onnx.NodeProto], int]] = {
    "LayerNormalization": (
        [
            helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
            helper.make_node("LayerNormalization", ["t", "six"], ["l"]),
            helper.make_node("Transpose", ["l"], ["n"], perm=[0, 3, 1, 2]),
        ],
        17,
    ),
    "RMSNormalization": (
        [
            helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
            helper.make_node("RMSNormalization", ["t", "six"], ["l"]),
            helper.make_node("Transpose", ["l"], ["n"], perm=[0, 3, 1, 2]),
        ],
        23,
    ),
    "GroupNormalization": ([helper.make_node("GroupNormalization", ["r", "six", "six"], ["n"], num_groups=2)], 21),
    "Resize": (
        [
            helper.make_node("Resize", ["r", "", "factors"], ["big"], axes=[2, 3], mode="linear"),
            helper.make_node("MaxPool", ["big"], ["n"], kernel_shape=[3, 2], strides=[1, 1]),
        ],
        18,
    ),
}
X = TensorProto.FLOAT, ["rows", 6, 2, 2]


def untyped(*names: str) -> list[onnx.ValueInfoProto]:
    return [onnx.ValueInfoProto(name=name) for name in names]


def counted() -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
    ]


def inside(place: str, nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Nodes from "x" and "yes" to "y", where others stand in a subgraph."""
    state = helper.make_tensor_value_info("h", *X)
    relu = helper.make_node("Relu", ["x"], ["r"])
    condition = helper.make_node("Identity", ["go"], ["gone"])
    if place == "branch":
        then = helper.make_graph([relu, *nodes], "then", [], untyped("n"))
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["m"])], "else", [], untyped("m"))
        return [helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other)]
    if place == "rows that are computed":
        some = [helper.make_node("Compress", ["x", "all"], ["some"], axis=0), helper.make_node("Relu", ["some"], ["r"])]
        then = helper.make_graph([*some, *nodes], "then", [], untyped("n"))
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["m"])], "else", [], untyped("m"))
        return [helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other)]
    if place == "state of a loop":
        body = helper.make_graph(
            [helper.make_node("Relu", ["h"], ["r"]), *nodes, condition],
            "body",
            [*counted(), *untyped("h")],
            untyped("gone", "n"),
        )
        return [helper.make_node("Loop", ["steps", "yes", "x"], ["y"], body=body)]
    if place == "branch in a loop":
        (branch,) = inside("branch", nodes)
        branch.output[:] = ["z"]
        loop = helper.make_graph([branch, condition], "body", counted(), untyped("gone", "z"))
        summed = helper.make_node("ReduceSum", ["ys", "nothing"], ["y"], keepdims=0)
        return [helper.make_node("Loop", ["steps", "yes"], ["ys"], body=loop), summed]
    body = helper.make_graph(
        [helper.make_node("Relu", ["part"], ["r"]), *nodes, helper.make_node("Add", ["h", "n"], ["next"])],
        "body",
        [state, *untyped("part")],
        untyped("next"),
    )
    stacked = helper.make_node("Concat", ["wide", "wide"], ["parts"], axis=0)
    wide = helper.make_node("Unsqueeze", ["x", "nothing"], ["wide"])
    return [wide, stacked, helper.make_node("Scan", ["x", "parts"], ["y"], body=body, num_scan_inputs=1)]


def write(path: Path, place: str, kind: str) -> Path:
    nodes, opset = KINDS[kind]
    inputs = [helper.make_tensor_value_info("x", *X), helper.make_tensor_value_info("yes", TensorProto.BOOL, [])]
    outputs = [helper.make_tensor_value_info("y", *X)]
    numbers = [numpy_helper.from_array(array, name) for name, array in NUMBERS.items()]
    graph = helper.make_graph(inside(place, nodes), "g", inputs, outputs, numbers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@rows("kind", KINDS)
@rows("place", ["branch", "state of a loop", "branch in a loop", "scan"])
def test_an_older_opset(tmp_path: Path, place: str, kind: str) -> None:
    path, new = write(tmp_path / "old.onnx", place, kind), tmp_path / "new.onnx"
    x = RANDOM.standard_normal((3, 6, 2, 2)).astype(np.float32)
    yes = np.array(True)
    ox.export.convert(path, new, opset=16, inputs={"x": x, "yes": yes})
    kinds = {node.op_type for node in ox.export.load(new).graph.all_nodes()}
    assert kind == "Resize" or kind not in kinds
    for count in (1, 5):
        feed = {"x": RANDOM.standard_normal((count, 6, 2, 2)).astype(np.float32), "yes": yes}
        first, second = (ort.InferenceSession(each).run(None, feed)[0] for each in (path, new))
        np.testing.assert_allclose(first, second, atol=1e-5)


def test_sizes_that_are_not_known(tmp_path: Path) -> None:
    x, yes = RANDOM.standard_normal((1, 6, 2, 2)).astype(np.float32), np.array(True)
    path = write(tmp_path / "old.onnx", "rows that are computed", "LayerNormalization")  # its rank is enough
    ox.export.convert(path, tmp_path / "new.onnx", opset=16, inputs={"x": x, "yes": yes})
    path = write(tmp_path / "old.onnx", "rows that are computed", "GroupNormalization")
    with pytest.raises(ExportError, match="GroupNormalization cannot be written for this opset"):
        ox.export.convert(path, tmp_path / "new.onnx", opset=16, inputs={"x": x, "yes": yes})
