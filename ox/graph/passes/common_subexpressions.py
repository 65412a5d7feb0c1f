"""Common subexpressions: what is computed twice from the same values is computed once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.core.operator import OPS
from ox.graph.ir import Graph, Node
from ox.graph.passes.walk import Walk


def merge_common_subexpressions(graph: Graph) -> bool:
    """Let later nodes with the operator, attributes and inputs of an earlier one give its results. Whether any did.

    Exact. It needs nodes in an order in which they run. It merges fused functions like operators, and never operators
    that draw random numbers, Identities (copies are meant), and nodes with subgraphs, which are opaque. Two equal graph
    outputs stay two: one becomes a copy of the other. A forward pass that was recorded once more for the backward pass,
    to save memory, is merged with the first one; `ox.graph.passes.recompute` chooses again.
    """
    walk = Walk(graph)
    seen: dict[Any, Node] = {}
    for node in walk:
        key = _key(node)
        first = seen.get(key) if key is not None else None
        if first is not None:
            walk.stand_for(node, first.outputs)
            continue
        walk.keep(node)
        if key is not None:
            seen[key] = node
    return walk.changed


def _key(node: Node) -> Any:
    """What two calls with equal results share; None for a node that stays by itself."""
    op = OPS.get(node.key)
    if op is None or op.random or node.key == "Identity":
        return None
    inputs = list(node.inputs)
    if op.commutative:
        inputs.sort(key=id)
    attributes = []
    for name, value in node.attributes.items():
        if isinstance(value, Graph):
            return None
        attributes.append((name, _frozen(value)))
    return node.key, len(node.outputs), tuple(inputs), tuple(sorted(attributes))


def _frozen(value: Any) -> str:
    """An attribute's value as text that only equal values share."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tobytes()!r}"
    return repr(list(value) if isinstance(value, tuple) else value)
