"""Finds rotary position embeddings (Su et al., *RoFormer*, 2021) in a decoder's graph, so that the attention applies
them itself: a dozen small operators a layer less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from ox.serve.operator_kinds import KINDS

if TYPE_CHECKING:
    from ox.serve.runtime.decoder_graph import DecoderGraph

Array = np.ndarray[Any, Any]

# Their results are no larger than what they read: see MOST_CONCATS
OPERATORS = KINDS["pointwise"] | KINDS["conversion"] | KINDS["identity"] | KINDS["reshape"] | {"Concat", "Constant"}
MOST_CONCATS = 4


class Rotation(NamedTuple):
    """`tensor` [batch, heads, new, size] is x·cos + rotated(x)·sin, and `scale` times that is what was looked at."""

    tensor: str
    cos: str
    sin: str
    scale: float


def find_rotation(graph: DecoderGraph, name: str) -> Rotation | None:
    """The rotation that a tensor comes from: halves of a head, (a, b) to (a·cos - b·sin, b·cos + a·sin)."""
    scale = 1.0
    while (node := graph.producer(name)) is not None and (factor := graph.factor(node)) is not None:
        scale *= factor
        name = next(each for each in node.input if graph.value(each) is None)
    if node is None or node.op_type != "Add":
        return None
    products = [graph.producer(each) for each in node.input]
    for straight, turned in (products, products[::-1]):
        if straight is None or turned is None or {straight.op_type, turned.op_type} != {"Mul"}:
            continue
        for tensor, cos in (straight.input, list(straight.input)[::-1]):
            for half, sin in (turned.input, list(turned.input)[::-1]):
                if _is_turned(graph, half, tensor):
                    return Rotation(tensor, cos, sin, scale)
    return None


def _is_turned(graph: DecoderGraph, name: str, tensor: str) -> bool:
    """Whether it is the concatenation of the second half, negated, and the first."""
    join = graph.producer(name)
    if join is None or join.op_type != "Concat" or len(join.input) != 2:
        return False
    negated, first = graph.producer(join.input[0]), graph.producer(join.input[1])
    if negated is None or negated.op_type != "Neg" or first is None or first.op_type != "Split":
        return False
    halves = [first.output[1], first.output[0]] if len(first.output) == 2 else []
    return first.input[0] == tensor and [negated.input[0], join.input[1]] == halves


def tables(graph: DecoderGraph, rotation: Rotation, length: int) -> tuple[Array, Array] | None:
    """Cosines and sines [length, size / 2] of all positions, as the graph computes them from position_ids; None if they
    come from something else, or are not the same for both halves."""
    nodes = _from_positions(graph, [rotation.cos, rotation.sin])
    operators = [node.op_type for node in nodes or ()]
    if not nodes or not OPERATORS.issuperset(operators) or operators.count("Concat") > MOST_CONCATS:
        return None  # what is computed from a file may not grow without measure
    inputs = [helper.make_tensor_value_info("position_ids", TensorProto.INT64, [1, length])]
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in (rotation.cos, rotation.sin)]
    for output in outputs:
        output.type.tensor_type.elem_type = TensorProto.FLOAT
    used = {name for node in nodes for name in node.input}
    stored = [tensor for tensor in graph.model.graph.initializer if tensor.name in used]
    part = helper.make_graph(nodes, "positions", inputs, outputs, stored)
    from onnx.reference import ReferenceEvaluator

    model = helper.make_model(part, opset_imports=graph.model.opset_import)
    found = ReferenceEvaluator(model).run(None, {"position_ids": np.arange(length)[None]})
    arrays = [np.asarray(array, np.float32).reshape(-1, np.asarray(array).shape[-1]) for array in found]
    half = arrays[0].shape[1] // 2
    if any(len(array) != length or not np.array_equal(array[:, :half], array[:, half:]) for array in arrays):
        return None
    return arrays[0][:, :half].copy(), arrays[1][:, :half].copy()


def _from_positions(graph: DecoderGraph, names: list[str]) -> list[NodeProto] | None:
    """The nodes that compute tensors from position_ids and constants alone, in their order."""
    wanted, found = list(names), set()
    while wanted:
        name = wanted.pop()
        node = graph.producer(name)
        if node is None:
            if name and name != "position_ids" and graph.value(name) is None:
                return None
        elif id(node) not in found:
            found.add(id(node))
            wanted += node.input
    return [node for node in graph.nodes if id(node) in found]
