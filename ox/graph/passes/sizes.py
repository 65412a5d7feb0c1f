"""Sizes that no run changes: which values have them, and the operators that are known with them."""

from __future__ import annotations

import math

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core.operator import OPS
from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.cleanup import fold
from ox.graph.passes.walk import Walk


def fold_fixed_sizes(graph: Graph) -> bool:
    """Fold each Shape and Size of a value of fixed sizes, and every operator whose inputs are numbers of the code.

    Exact. It reads `Value.shape`, the sizes of the recorded run, and trusts them where `fixed_values` does. It needs no
    inference by onnx. What is computed from a parameter stays; graph outputs stay. Whether anything was folded.
    """
    walk = Walk(graph)
    fixed = _ends(graph)
    with no_grad():
        for node in walk:
            if not _fold(node, graph, fixed):
                walk.keep(node)
                if _sizes_follow(node, graph, fixed):
                    fixed.update(node.outputs)
                continue
            walk.changed = True
            fixed.update(node.outputs)
    return walk.changed


def fixed_values(graph: Graph) -> set[Value]:
    """The values whose `shape` holds in every run: inputs without named sizes, constants, and what is computed from
    them alone, except by operators whose result's sizes depend on values: NonZero, or a Reshape to computed sizes."""
    fixed = _ends(graph)
    for node in graph.nodes:
        if _sizes_follow(node, graph, fixed):
            fixed.update(node.outputs)
    return fixed


def of_counted_sizes(graph: Graph) -> set[Value]:
    """The values whose sizes may depend on values: what NonZero, Unique and the like make, and all after it."""
    found: set[Value] = set()
    for node in graph.nodes:
        inside = (n for _, inner in node.subgraphs() for n in inner.all_nodes())
        counts = any(OPS[n.key].data_dependent_shape for n in (node, *inside) if n.key in OPS)
        if counts or any(v in found for v in node.inputs):
            found.update(node.outputs)
    return found


def _ends(graph: Graph) -> set[Value]:
    given = {
        v for v in graph.inputs if v.shape is not None and not any(isinstance(d, str) for d in v.dims or ())
    }  # fmt: skip
    for v in graph.constants:
        if v.shape is None:
            v.shape = graph.constants[v].shape
    return given | graph.constants.keys()


def _sizes_follow(node: Node, graph: Graph, fixed: set[Value]) -> bool:
    """Whether the recorded sizes of a node's outputs are those of every run."""
    op = OPS.get(node.key)
    if op is None or op.data_dependent_shape or any(v.shape is None for v in node.outputs if v.name):
        return False
    for i, v in enumerate(node.inputs):
        if v is not None and (v not in fixed or (op.schema.input_at(i).host and v not in graph.constants)):
            return False
    return not any(True for _ in node.subgraphs())


def _fold(node: Node, graph: Graph, fixed: set[Value]) -> bool:
    """Make constants of the node's outputs, if they are known."""
    source = node.inputs[0] if node.inputs else None
    if node.key in ("Shape", "Size") and source in fixed and node.outputs[0] not in graph.outputs:
        assert source is not None and source.shape is not None
        sizes = source.shape
        if node.key == "Size":
            made = np.array(math.prod(sizes), np.int64)
        else:
            made = np.array(sizes[slice(node.attributes.get("start", 0), node.attributes.get("end"))], np.int64)
        graph.constants[node.outputs[0]] = made
        node.outputs[0].shape = node.outputs[0].dims = made.shape
        return True
    if node.domain or OPS[node.key].random or node.key == "Identity":
        return False
    if not all(v is None or (v in graph.constants and v not in graph.owned) for v in node.inputs):
        return False
    return not any(True for _ in node.subgraphs()) and fold(graph, node)
