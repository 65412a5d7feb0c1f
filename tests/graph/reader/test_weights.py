"""Constants of a file that are weights, also where they are moved about first."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from rows import rows

from ox.graph.reader.read import from_model
from ox.graph.reader.weights import constants_to_weights

node = helper.make_node
SIZES = numpy_helper.from_array(np.array([4, 4]), "sizes")
# nodes that make the factor of a product, and whether the constant in them is a weight
MOVED: dict[str, tuple[list[onnx.NodeProto], bool]] = {
    "split": ([node("Split", ["w"], ["f", "rest"], axis=0, num_outputs=2)], True),
    "flattened": ([node("Flatten", ["w"], ["flat"]), node("Reshape", ["flat", "sizes"], ["f"])], True),
    "joined": ([node("Concat", ["w", "w"], ["f"], axis=0)], True),
    "blocks": ([node("DepthToSpace", ["w"], ["deep"], blocksize=2), node("Reshape", ["deep", "sizes"], ["f"])], True),
    "cast like": ([node("CastLike", ["w", "x"], ["f"])], True),
    "computed": ([node("Exp", ["w"], ["f"])], False),
    "repeated": ([node("Expand", ["w", "sizes"], ["f"])], False),
}


@rows("name", MOVED)
def test_moved_weights(name: str) -> None:
    nodes, weight = MOVED[name]
    shape = {
        "split": (8, 4),
        "joined": (2, 4),
        "blocks": (1, 4, 2, 2),
        "flattened": (2, 2, 2, 2),
        "repeated": (1,),
    }.get(name, (4, 4))
    w: Any = numpy_helper.from_array(np.ones(shape, np.float32), "w")
    ends = [helper.make_tensor_value_info(end, 1, [2, 4]) for end in ("x", "y")]
    nodes = [node("Constant", [], ["w"], value=w), *nodes, node("MatMul", ["x", "f"], ["y"])]
    file = helper.make_graph(nodes, "moved", ends[:1], ends[1:], [SIZES])
    graph = from_model(helper.make_model(file, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    constants_to_weights(graph)
    assert ("w" in {v.name for v in graph.owned}) == weight
