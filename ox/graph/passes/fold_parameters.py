"""What is computed from parameters alone is computed once, and takes their place in the file."""

from __future__ import annotations

from ox.autograd.grad_mode import no_grad
from ox.core.operator import OPS
from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.cleanup import compute, remove_dead
from ox.graph.passes.recompute import size_of

SMALL = 1 << 16  # bytes, that a file may grow by for one result


def fold_parameters(graph: Graph) -> bool:
    """Run nodes that read only parameters and numbers, and own the results in their place. Whether there were any.

    Exact. An LSTM's gates are in ONNX's order then, and a weight norm is gone: a file is faster and shorter, and can no
    longer be fine-tuned as the model was. A result takes the name of the first parameter that it was made of. Left
    alone are results that are large while the parameters stay, because others read them, too; and what a caller of the
    file may override.
    """
    nodes = _foldable(graph)
    if not nodes:
        return False
    first: dict[Value, Value] = {v: v for v in graph.owned}
    with no_grad():
        for node in nodes:
            origin = next((first[v] for v in node.inputs if v in first), None)
            for value, array in zip(node.outputs, compute(graph, node), strict=False):
                graph.constants[value] = array
                value.shape = value.dims = array.shape
                if origin is not None:
                    first[value] = origin
                    graph.owned.add(value)
    folded = set(nodes)
    graph.nodes = [node for node in graph.nodes if node not in folded]
    remove_dead(graph)
    _name(graph, first)
    return True


def _foldable(graph: Graph) -> list[Node]:
    """The nodes to run, in order: those without which no parameter stays that a large result is made of."""
    kept: set[Node] = set()  # nodes that stay, found one round after the other
    while True:
        known = set(graph.constants) - set(graph.overridable)
        nodes = []
        for node in graph.nodes:
            op = OPS.get(node.key)
            given = all(v is None or v in known for v in node.inputs)
            if op is None or op.random or not given or node in kept or any(v in graph.outputs for v in node.outputs):
                continue
            if any(True for _ in node.subgraphs()) or any(v.shape is None for v in node.outputs):
                continue
            nodes.append(node)
            known.update(node.outputs)
        inside = set(nodes)
        staying = {v for node in graph.nodes if node not in inside for v in node.inputs} | set(graph.outputs)
        more = {node for node in nodes if _grows(node, graph, staying)}
        if not more:
            return nodes
        kept |= more


def _grows(node: Node, graph: Graph, staying: set[Value | None]) -> bool:
    """Whether a file would hold a large result beside what it is made of, or one larger than that."""
    results = sum(size_of(v) for v in node.outputs)
    leaving = sum(size_of(v) for v in node.inputs if v is not None and v not in staying)
    return results > leaving + SMALL


def _name(graph: Graph, first: dict[Value, Value]) -> None:
    """Name the new values that are left after what they were made of."""
    taken = {v.name for v in graph.inputs} | {v.name for v in graph.outputs}
    taken |= {v.name for v in graph.owned if first.get(v, v) is v}
    for value in graph.constants:
        origin = first.get(value)
        if value not in graph.owned or origin is None or origin is value:
            continue
        name, k = origin.name, 1
        while name in taken:
            name, k = f"{origin.name}_{k}", k + 1
        taken.add(name)
        value.name = name
