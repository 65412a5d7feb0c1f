"""Nodes replaced by what computes the same: the nodes of a graph, with values of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.shape_inference import Dims
from ox.graph.writer.functions import body_of
from ox.graph.writer.opset import expandable, obstacle

Body = Callable[..., Any]
Rule = Callable[[Node, Graph, Dims], Body | None]  # what computes the same as a node, or None where it stays


def expand(graph: Graph, opset: int, rules: Mapping[str, Rule], dims: Dims) -> bool:
    """Replace, in place, each node that `opset` can only express by a model-local function, and each that has a rule.
    Whether any was.

    Args:
        rules: by the operator's name. A body takes the node's inputs as tensors, None for those left out, and its
            attributes; it is recorded.
        dims: inferred sizes by value name, for the rules.
    """
    nodes: list[Node] = []
    known = expandable(graph)
    changed = False
    for node in graph.nodes:
        for _, inside in node.subgraphs():
            changed |= expand(inside, opset, rules, {})
        rule = rules.get(node.key)
        body = rule(node, graph, dims) if rule is not None else None
        numbers = known.get(node, {})
        function = node.domain == "ox" or (node in known and obstacle(node, opset) is not None)
        if body is None and not function:
            nodes.append(node)
            continue
        recorded = body_of(node, {} if body is not None or node.domain else numbers, body)
        made, outputs = spliced(graph, recorded, [v for v in node.inputs if v is not None], node)
        nodes += made
        for old, new in zip(node.outputs, outputs, strict=False):
            if old.name:
                nodes.append(Node("Identity", "", [new], [old], where=node.where, module=node.module))
        changed = True
    graph.nodes = nodes
    return changed


def spliced(graph: Graph, body: Graph, given: list[Value], of: Node) -> tuple[list[Node], list[Value]]:
    """The nodes of a body as nodes of `graph`, and the values that they give for its outputs.

    Args:
        given: the values of `graph` that stand for the inputs of the body, and for what it captures behind them.
        of: the node whose place in the user's code they have.
    """
    now = dict(zip([*body.inputs, *body.captures], given, strict=True))
    for value, array in body.constants.items():
        now[value] = Value(value.name, value.dtype, array.shape, array.shape)
        graph.constants[now[value]] = array
    nodes = []
    for node in body.nodes:
        for v in node.outputs:
            now[v] = Value(v.name, v.dtype, None, v.shape)
        inputs = [None if v is None else now[v] for v in node.inputs]
        outputs = [now[v] for v in node.outputs]
        nodes.append(replace(node, inputs=inputs, outputs=outputs, where=of.where, module=of.module))
    return nodes, [now[v] for v in body.outputs]
