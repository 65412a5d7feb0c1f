"""Finds the sizes of all values of a graph as polynomials of its named sizes."""

from __future__ import annotations

from ox.graph.ir import Graph
from ox.graph.passes.symbolic_numbers import numbers_of
from ox.graph.passes.symbolic_rules import sizes_of
from ox.graph.passes.symbolic_sizes import LONGEST, Known, SymbolicSizes


def analyze_sizes(graph: Graph, known: Known | None = None) -> SymbolicSizes:
    """Walk over the nodes, which stand in an order in which they run.

    ONNX's own inference knows numbers and names of inputs; here ``batch·4·64 / 64`` is ``4·batch``. What is said of a
    size holds in every run that the graph does not refuse: where two values are added whose sizes must be equal, they
    are taken as equal.

    Args:
        known: inferred sizes by the names of values, for operators that have no rule in
            `ox.graph.passes.symbolic_rules`.
    """
    found = SymbolicSizes(graph, known or {})
    for node in graph.nodes:
        sizes = sizes_of(found, node) or [None] * len(node.outputs)
        for value, each in zip(node.outputs, sizes, strict=True):
            found.note(value, each)
        numbers = numbers_of(found, node)
        if numbers is not None and len(numbers) <= LONGEST:
            found.numbers[node.outputs[0]] = numbers
    return found
