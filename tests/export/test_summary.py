"""What `ox inspect` counts as weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ox
from ox_cli.inspect import report

Array = np.ndarray[Any, Any]


def constant(name: str, array: Array) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))


def value(name: str, *shape: int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def sparse(name: str, dims: list[int]) -> Any:
    values = numpy_helper.from_array(np.ones(3, np.float32), name)
    indices = numpy_helper.from_array(np.arange(3), f"{name}_at")
    return helper.make_sparse_tensor(values, indices, dims)


def branch(name: str, nodes: list[Any], weight: Array | None = None) -> Any:
    stored = [] if weight is None else [numpy_helper.from_array(weight, f"{name}_w")]
    last = f"{name}_c" if weight is None else f"{name}_w"
    nodes = [*nodes, helper.make_node("Identity", [last], [f"{name}_y"])]
    return helper.make_graph(nodes, name, [], [value(f"{name}_y", 2, 4)], stored)


def saved(path: Path, nodes: list[Any], functions: tuple[Any, ...] = (), **fields: Any) -> Any:
    graph = helper.make_graph(nodes, "g", [value("x", 2, 4)], [value("y", 2, 4)], **fields)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)
    onnx.save(model, path)
    return ox.export.inspect(path)


W, AXES = np.ones((2, 4), np.float32), np.array([0, 1, 2, 3])
ADD = helper.make_node("Add", ["x", "w"], ["y"])


@pytest.mark.parametrize(
    "array",
    [W, W.astype(np.float16), W.astype(np.float64), W.astype(np.int8), W.astype(np.uint8)],
    ids=lambda a: a.dtype,
)
def test_constants_are_weights(tmp_path: Path, array: Array) -> None:
    nodes = [constant("w", array), constant("axes", AXES), constant("one", np.float32(1)), ADD]
    summary = saved(tmp_path / "m.onnx", nodes)
    assert (summary.parameters, summary.initializers, summary.constants) == (8, 0, 1)
    assert ("parameters", "8 in 0 initializers and 1 constants") in report(summary)


def test_other_forms_of_constants(tmp_path: Path) -> None:
    floats = helper.make_node("Constant", [], ["f"], value_floats=[1.0, 2.0, 3.0])
    integers = helper.make_node("Constant", [], ["i"], value_ints=[1, 2, 3])
    thin = helper.make_node("Constant", [], ["t"], sparse_value=sparse("t", [9]))
    summary = saved(tmp_path / "m.onnx", [floats, integers, thin, constant("w", W), ADD])
    assert (summary.parameters, summary.constants) == (3 + 3 + 8, 3)


def test_branches_functions_and_sparse_initializers_count(tmp_path: Path) -> None:
    then, other = branch("a", [constant("a_c", W)]), branch("b", [], np.ones((3, 4), np.float32))
    inner = helper.make_node("If", ["c"], ["w"], then_branch=then, else_branch=other)
    outer = branch("o", [helper.make_node("If", ["c"], ["o_c"], then_branch=then, else_branch=other)])
    nested = helper.make_node("If", ["c"], ["v"], then_branch=outer, else_branch=other)
    function = helper.make_function(
        "own", "F", ["a"], ["z"], [constant("k", np.ones(5, np.float32)), helper.make_node("Identity", ["a"], ["z"])],
        [helper.make_opsetid("", 20)],
    )  # fmt: skip
    nodes = [constant("c", np.array(True)), inner, nested, helper.make_node("F", ["x"], ["z"], domain="own"), ADD]
    summary = saved(tmp_path / "m.onnx", nodes, (function,), sparse_initializer=[sparse("s", [9])])
    assert summary.constants == 3 and summary.initializers == 3 + 1
    assert summary.parameters == (8 + 8 + 5) + 3 * 12 + 3


def test_external_data_of_constants_is_named(tmp_path: Path) -> None:
    node = constant("w", W)
    tensor = node.attribute[0].t
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    summary = saved(tmp_path / "m.onnx", [node, ADD])
    assert summary.external == ("w.bin",) and summary.parameters == 8
    assert summary.size == (tmp_path / "m.onnx").stat().st_size + 32
