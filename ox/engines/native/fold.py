"""What is known before a graph runs: sizes, and what is computed from sizes and constants alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ox.core.operator import OPS
from ox.core.subgraph import Control
from ox.engines.native.calls import call_of
from ox.graph.ir import Array, Graph, Node, Value
from ox.ops.control.sequence import OfSequences

LARGEST_FOLD = 1 << 16  # elements; a larger constant is cheaper to compute than to keep


@dataclass
class Folded:
    """A graph of which all is computed that can be."""

    nodes: list[Node]  # what is left to run, in the order of the graph, without what no output needs
    constants: dict[Value, Array]  # the graph's own, and what was computed
    # of values whose sizes are those of the recorded call, whatever the inputs hold
    sizes: dict[Value, tuple[int, ...]]


def fold(graph: Graph) -> Folded:
    """Compute what depends on constants and fixed sizes alone; the graph stays as it is."""
    constants = dict(graph.constants)
    sizes: dict[Value, tuple[int, ...]] = {v: array.shape for v, array in constants.items()}
    sizes |= {v: v.shape for v in graph.inputs if v.shape is not None}
    nodes: list[Node] = []
    for node in graph.nodes:
        if _foldable(node, constants, sizes) and _compute(node, constants, sizes):
            continue
        nodes.append(node)
        if _keeps_sizes(node, constants, sizes):
            sizes |= {v: v.shape for v in node.outputs if v.shape is not None}
    return Folded(_needed(graph, nodes), constants, sizes)


def _foldable(node: Node, constants: dict[Value, Array], sizes: dict[Value, tuple[int, ...]]) -> bool:
    op = OPS.get(node.key)
    own = op is not None and op.domain and node.key != "ox.InRange"  # of known numbers, there is nothing to check later
    if op is None or op.random or own or isinstance(op, (Control, OfSequences)):
        return False
    if node.op_type in ("Shape", "Size"):
        return node.inputs[0] in sizes
    return all(v is None or isinstance(constants.get(v), np.ndarray) for v in node.inputs)  # those of a GPU stay there


def _compute(node: Node, constants: dict[Value, Array], sizes: dict[Value, tuple[int, ...]]) -> bool:
    """Whether the node was computed: its results are small enough to be kept."""
    if any(v.shape is not None and np.prod(v.shape, dtype=np.int64) > LARGEST_FOLD for v in node.outputs):
        return False
    if node.op_type in ("Shape", "Size") and node.inputs[0] not in constants:
        source = node.inputs[0]
        assert source is not None
        stand_in = np.broadcast_to(np.zeros((), source.dtype or np.float32), sizes[source])
        results = call_of(node).results([stand_in])
    else:
        results = call_of(node).results([None if v is None else constants[v] for v in node.inputs])
    if any(result.size > LARGEST_FOLD for result in results):
        return False
    for value, result in zip(node.outputs, results, strict=False):
        constants[value] = np.array(result, order="C")
        sizes[value] = result.shape
    return True


def _keeps_sizes(node: Node, constants: dict[Value, Array], sizes: dict[Value, tuple[int, ...]]) -> bool:
    """Whether the sizes of a node's results follow from sizes and constants."""
    op = OPS.get(node.key)
    if op is None or op.data_dependent_shape or isinstance(op, (Control, OfSequences)):
        return False
    for i, value in enumerate(node.inputs):
        if value is None:
            continue
        if value not in sizes or (op.schema.input_at(i).host and value not in constants):
            return False
    return True


def _needed(graph: Graph, nodes: list[Node]) -> list[Node]:
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(nodes):
        if any(v in needed for v in node.outputs):
            kept.append(node)
            needed.update(v for v in node.inputs if v is not None)
    return kept[::-1]
