"""What a stock runtime gets wrong, and how a file avoids it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ox.dtypes import bfloat16, float32, onnx_type
from ox.graph.ir import Graph, Node, Value


def shielded(graph: Graph) -> list[Node]:
    """The graph's nodes, where each BatchNormalization in training mode reads copies of its running statistics.

    ONNX Runtime's CPU kernel (1.31 and before) overwrites the old ones, even if others read them, even
    over the arrays that the caller fed. A Max of one input is a copy that no optimizer takes away, an Identity is not.
    """
    readers: dict[Value, int] = {}
    for node in graph.nodes:
        for v in node.inputs:
            if v is not None:
                readers[v] = readers.get(v, 0) + 1
    copies = {
        n.outputs[0] for n in graph.nodes if n.key == "Max" and len(n.inputs) == 1 and readers.get(n.outputs[0]) == 1
    } - set(graph.outputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        inside = {name: replace(g, nodes=shielded(g)) for name, g in node.subgraphs()}
        if inside:
            nodes.append(replace(node, attributes={**node.attributes, **inside}))
            continue
        if node.key != "BatchNormalization" or not node.attributes.get("training_mode"):
            nodes.append(node)
            continue
        inputs = list(node.inputs)
        for i in (3, 4):
            v = inputs[i]
            if v is not None and v not in copies:
                copy = Value(f"{v.name}/copy_{len(nodes)}", v.dtype, v.dims, v.shape)
                nodes.append(Node("Max", "", [v], [copy], where=node.where, module=node.module))
                inputs[i] = copy
        nodes.append(replace(node, inputs=inputs))
    return nodes


def with_columns(graph: Graph) -> Graph:
    """The same graph, where each product with a vector on the right is one with a matrix of one column.

    ONNX Runtime (1.32) makes one operator of a Transpose and the MatMul behind it, and there mistakes the vector.
    """
    constants: dict[Value, Any] = {}

    def rewritten(node: Node, nodes: list[Node]) -> bool:
        right = node.inputs[1] if node.key == "MatMul" else None
        if right is None or len(right.dims or right.shape or ()) != 1:
            return False
        (made,) = node.outputs
        last = _constant(constants, f"{made.name}/last", np.array([-1]))
        column = Value(f"{made.name}/column", made.dtype, None, right.shape and (*right.shape, 1))
        product = Value(f"{made.name}/product", made.dtype, None, None if made.shape is None else (*made.shape, 1))
        calls: list[tuple[str, list[Value | None], Value]] = [
            ("Unsqueeze", [right, last], column),
            ("MatMul", [node.inputs[0], column], product),
            ("Squeeze", [product, last], made),
        ]
        for kind, inputs, output in calls:
            nodes.append(Node(kind, "", inputs, [output], where=node.where, module=node.module))
        return True

    return _rewritten(graph, rewritten, constants, with_columns)


def with_truths_chosen(graph: Graph) -> Graph:
    """The same graph, where each Where of truth values is And, Or and Not: ONNX Runtime (1.32) has no kernel for it."""

    def rewritten(node: Node, nodes: list[Node]) -> bool:
        if node.key != "Where" or not any(v is not None and v.dtype == np.bool_ for v in node.inputs[1:]):
            return False
        condition, first, second = node.inputs
        (made,) = node.outputs
        names = ("taken", "other", "left")
        taken, other, left = (Value(f"{made.name}/{name}", made.dtype, None, made.shape) for name in names)
        calls: list[tuple[str, list[Value | None], Value]] = [
            ("And", [condition, first], taken),
            ("Not", [condition], other),
            ("And", [other, second], left),
            ("Or", [taken, left], made),
        ]
        for kind, inputs, output in calls:
            nodes.append(Node(kind, "", inputs, [output], where=node.where, module=node.module))
        return True

    return _rewritten(graph, rewritten, {}, with_truths_chosen)


def with_both_limits(graph: Graph) -> Graph:
    """The same graph, where no Clip of fractions lacks a limit: runtimes take the largest finite number for it, and
    would make that of an infinity."""
    constants: dict[Value, Any] = {}

    def rewritten(node: Node, nodes: list[Node]) -> bool:
        x = node.inputs[0] if node.key == "Clip" else None
        if x is None or x.dtype is None or x.dtype.kind != "f":
            return False
        limits: list[Value | None] = [*node.inputs[1:], None, None][:2]
        for i, infinite in enumerate((-np.inf, np.inf)):
            name = f"{node.outputs[0].name}/{('low', 'high')[i]}"
            limits[i] = limits[i] or _constant(constants, name, np.array(infinite, x.dtype))
        nodes.append(replace(node, inputs=[x, *limits]))
        return True

    return _rewritten(graph, rewritten, constants, with_both_limits)


def _rewritten(
    graph: Graph,
    rewritten: Callable[[Node, list[Node]], bool],
    constants: dict[Value, Any],
    inside: Callable[[Graph], Graph],
) -> Graph:
    """A graph of the nodes that `rewritten` appends, or those for which it does not, with `inside` of subgraphs."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if not rewritten(node, nodes):
            inner = {name: inside(g) for name, g in node.subgraphs()}
            nodes.append(replace(node, attributes={**node.attributes, **inner}) if inner else node)
    return replace(graph, nodes=nodes, constants={**graph.constants, **constants})


def _constant(constants: dict[Value, Any], name: str, array: Any) -> Value:
    value = Value(name, array.dtype, array.shape, array.shape)
    constants[value] = array
    return value


# what ONNX Runtime's CPU (1.31) runs in bfloat16: of what moves values, it has kernels for these alone
_MOVES = frozenset(
    ("Cast", "CastLike", "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Shape", "Size")
) | frozenset(("Concat", "Split", "Slice", "Gather", "GatherElements", "If", "Loop", "Scan"))


def mixed_bfloat16(graph: Graph) -> bool:
    """Whether bfloat16 is what the graph itself casts to (autocast), and none of its inputs and weights."""
    ends = {v.dtype for v in [*graph.inputs, *graph.constants] if v in graph.inputs or v in graph.owned}
    return bfloat16 not in ends and bfloat16 in types_of(graph)


def types_of(graph: Graph) -> set[Any]:
    """The element types of its values, and of those of its subgraphs."""
    inside = [types_of(g) for node in graph.nodes for _, g in node.subgraphs()]
    return {v.dtype for v in graph.values()}.union(*inside)


def between_casts(graph: Graph) -> Graph:
    """The same graph, where each operator that computes in bfloat16 computes in float32 between Casts.

    ONNX Runtime's CPU has no bfloat16 kernels to speak of, and ox's own compute in float32 and round once: so such a
    file gives everywhere what the model gave. Between operators the values stay bfloat16.
    """
    nodes: list[Node] = []
    for k, node in enumerate(graph.nodes):
        types = {v.dtype for v in [*node.inputs, *node.outputs] if v is not None}
        if bfloat16 not in types or node.key in _MOVES:
            inside: dict[str, Any] = {name: between_casts(g) for name, g in node.subgraphs()}
            nodes.append(replace(node, attributes={**node.attributes, **inside}) if inside else node)
            continue

        def cast(source: Value, made: Value, of: Node = node) -> Value:
            to = {"to": onnx_type(made.dtype)} if made.dtype is not None else {}
            nodes.append(Node("Cast", "", [source], [made], to, where=of.where, module=of.module))
            return made

        inputs = [
            cast(v, Value(f"{v.name}/float32_{k}_{i}", float32, v.dims, v.shape))
            if v is not None and v.dtype == bfloat16
            else v
            for i, v in enumerate(node.inputs)
        ]
        outputs = [
            Value(f"{v.name}/float32", float32, v.dims, v.shape) if v.dtype == bfloat16 else v for v in node.outputs
        ]
        attributes = dict(node.attributes)
        if getattr(attributes.get("value"), "dtype", None) == bfloat16:
            attributes["value"] = attributes["value"].astype(float32)
        nodes.append(replace(node, inputs=inputs, outputs=outputs, attributes=attributes))
        for wide, v in zip(outputs, node.outputs, strict=True):
            if wide is not v:
                cast(wide, v)
    return replace(graph, nodes=nodes)
