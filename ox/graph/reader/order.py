"""The order in which the nodes of a file can be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx


def in_order(nodes: Sequence[onnx.NodeProto]) -> Sequence[onnx.NodeProto]:
    """The nodes, each behind those that make what it reads, otherwise as they are. ONNX demands that order of a file,
    but tools leave others, and runtimes take them. Nodes in a circle stay where they are."""
    made_by = {name: i for i, n in enumerate(nodes) for name in n.output if name}
    before = [sorted({made_by[name] for name in _reads(n) if name in made_by}) for n in nodes]
    if all(not numbers or numbers[-1] < i for i, numbers in enumerate(before)):
        return nodes
    done: list[int] = []
    state = [0] * len(nodes)  # 1 once its predecessors wait for their turn, 2 when it is done
    for start in range(len(nodes)):
        waiting = [start]
        while waiting:
            i = waiting[-1]
            further = [p for p in before[i] if not state[p]] if not state[i] else []
            state[i] = state[i] or 1
            if further:
                waiting += reversed(further)
                continue
            waiting.pop()
            if state[i] == 1:
                state[i] = 2
                done.append(i)
    return [nodes[i] for i in done]


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, its subgraphs too; also names that these make themselves."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inside in graph.node:
                yield from _reads(inside)
            yield from (info.name for info in graph.output)
