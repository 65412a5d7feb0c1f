"""Names for values without one. A graph that is written, read and written again gets the same names."""

from __future__ import annotations

from collections.abc import Iterator

from ox.graph.ir import Graph, Node, Value


def rename(graph: Graph) -> None:
    """Name every value that is no input, no output and not owned after the operator that makes it, in the order in
    which they run; put the constants of the code in the order in which they are read. Subgraphs share the numbers."""
    taken = {v.name for v in [*graph.inputs, *graph.outputs, *graph.owned]}
    counts: dict[str, int] = {}

    def name(value: Value, stem: str) -> None:
        while True:
            k = counts.get(stem, 0)
            counts[stem] = k + 1
            value.name = stem if not k else f"{stem}_{k}"
            if value.name not in taken:
                return

    def visit(graph: Graph, kept: set[Value]) -> None:
        read = list(dict.fromkeys(v for v in _read(graph) if v in graph.constants and v not in graph.owned))
        graph.constants = {v: graph.constants[v] for v in [*(v for v in graph.constants if v in graph.owned), *read]}
        for value in read:
            name(value, "constant")
        for node in graph.nodes:
            for v in node.outputs:
                if v not in kept and v.name:
                    name(v, node.op_type.lower())
            for _, inside in node.subgraphs():
                for v in inside.inputs:
                    name(v, f"{node.op_type.lower()}_in")
                outside = node.inputs[len(node.inputs) - len(inside.captures) :]
                for v, outer in zip(inside.captures, outside, strict=True):
                    v.name = outer.name if outer is not None else v.name
                visit(inside, set())

    visit(graph, set(graph.outputs))


def _read(graph: Graph) -> Iterator[Value]:
    """What the nodes read, in order, and what the graph gives."""
    nodes: list[Node] = graph.nodes
    for node in nodes:
        yield from (v for v in node.inputs if v is not None)
    yield from graph.outputs
