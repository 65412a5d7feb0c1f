"""A graph in bfloat16 is computed in float32: weights, constants, casts and branches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from ml_dtypes import bfloat16
from onnx import TensorProto, helper, numpy_helper

from ox.graph.bfloat16_file import cast_weights, widen

HALF, FULL = TensorProto.BFLOAT16, TensorProto.FLOAT


def test_a_graph_with_branches() -> None:
    weights = np.array([[1.5, 2.25], [-3.0, 0.5]], bfloat16)

    def branch(number: float) -> object:
        value = numpy_helper.from_array(np.array(number, bfloat16), "value")
        nodes = [
            helper.make_node("Constant", [], ["number"], value=value),
            helper.make_node("MatMul", ["narrow", "weights"], ["product"]),
            helper.make_node("Mul", ["product", "number"], [f"result.{number}"]),
        ]
        return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(f"result.{number}", HALF, None)])

    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=HALF),
        helper.make_node("If", ["first"], ["y"], then_branch=branch(2.0), else_branch=branch(0.5)),
    ]
    inputs = [helper.make_tensor_value_info("x", FULL, [1, 2]), helper.make_tensor_value_info("first", 9, [])]
    outputs = [helper.make_tensor_value_info("y", HALF, None)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, [numpy_helper.from_array(weights, "weights")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    widen(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.array([[1.0, 3.0]], np.float32)
    for first, factor in ((True, 2.0), (False, 0.5)):
        (found,) = session.run(None, {"x": x, "first": np.array(first)})
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, x @ weights.astype(np.float32) * factor)


def test_weights_that_are_inputs_too() -> None:
    """As in files of IR version 3."""
    weights = np.array([1.5, -0.25], bfloat16)
    nodes = [helper.make_node("Add", ["x", "weights"], ["y"])]
    ends = [helper.make_tensor_value_info(name, HALF, [2]) for name in ("x", "weights", "y")]
    graph = helper.make_graph(nodes, "graph", ends[:2], ends[2:], [numpy_helper.from_array(weights, "weights")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7)
    widen(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.array([1.0, 2.0], np.float32)})
    np.testing.assert_array_equal(y, np.array([2.5, 1.75], np.float32))


def test_weights_that_are_cast_at_once() -> None:
    """Those above a size; with the values that a Cast gives them."""
    weights = {"large": np.array([1.5, -0.25], bfloat16), "small": np.array([3.0], bfloat16)}
    nodes = [helper.make_node("Mul", ["x", "large"], ["z"]), helper.make_node("Add", ["z", "small"], ["y"])]
    ends = [helper.make_tensor_value_info(name, HALF, [2]) for name in "xy"]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], stored),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    widen(model)
    data, values = cast_weights(model.SerializeToString(), Path(), 4)
    assert [*values] == ["large"] and values["large"].dtype == np.float32
    casts = [node for node in onnx.ModelProto.FromString(data).graph.node if node.op_type == "Cast"]
    assert [node.input[0] for node in casts] == ["small.bfloat16"]
    options = onnxruntime.SessionOptions()
    options.add_external_initializers([*values], [onnxruntime.OrtValue.ortvalue_from_numpy(values["large"])])
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.array([1.0, 2.0], np.float32)})
    np.testing.assert_array_equal(y, np.array([4.5, 2.5], np.float32))
    assert cast_weights(data, Path(), 1 << 20) == (data, {})
