"""The values that onnx's shape inference would carry along are counted before it is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, defs, helper, numpy_helper

from ox.serve.runtime.shape_data import CARRYING, MAX_ELEMENTS, is_small_shape_data

node = helper.make_node


def graph(nodes: list[Any], **weights: Any) -> Any:
    given = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    return helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("y", TensorProto.INT64, None)], given)


def joined(turns: int) -> list[Any]:
    return [node("Concat", [f"k{turn}"] * 2, [f"k{turn + 1}"], axis=0) for turn in range(turns)]


def test_the_operators_are_those_of_onnx() -> None:
    """Of another version of onnx, this says which operators are to be looked at."""
    assert {schema.name for schema in defs.get_all_schemas() if schema.has_data_propagation_function} == CARRYING


def test_what_doubles() -> None:
    assert is_small_shape_data(graph(joined(16), k0=[1]))
    assert not is_small_shape_data(graph(joined(31), k0=[1]))
    assert not is_small_shape_data(graph(joined(100_000), k0=[1]))  # no numbers of 100,000 digits on the way
    assert not is_small_shape_data(graph([node("Constant", [], ["k0"], value_ints=[1, 2]), *joined(20)]))
    assert not is_small_shape_data(graph([node("Shape", ["x"], ["k0"]), *joined(20)]))


def test_what_is_many() -> None:
    """No growth, but one large vector again and again."""
    copies = [node("Cast", [f"k{turn}"], [f"k{turn + 1}"], to=TensorProto.INT64) for turn in range(100)]
    assert is_small_shape_data(graph(copies, k0=np.arange(64)))
    assert not is_small_shape_data(graph(copies, k0=np.arange(MAX_ELEMENTS // 64)))


def test_what_is_inside() -> None:
    branch = graph(joined(31))
    choice = node("If", ["c"], ["y"], then_branch=branch, else_branch=graph([]))
    assert not is_small_shape_data(graph([choice], k0=[1], c=True))
    assert is_small_shape_data(graph([choice], c=True))  # of an input, which has no value


def test_activations_carry_nothing() -> None:
    """Layers that add biases and join what they give."""
    nodes = []
    for layer in range(200):
        nodes += [node("Conv", [f"x{layer}", "w", "b"], ["t"]), node("Relu", ["t"], ["u"])]
        nodes += [node("Concat", ["u", f"x{layer}"], [f"x{layer + 1}"], axis=1)]
    assert is_small_shape_data(graph(nodes, w=np.ones((64, 3, 3, 3), np.float32), b=np.ones(64, np.float32)))
