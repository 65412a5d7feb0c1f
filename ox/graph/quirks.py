"""What a stock runtime gets wrong, and how a file avoids it."""

from __future__ import annotations

from dataclasses import replace

from ox.graph.form import Graph, Node, Value


def shielded(graph: Graph) -> list[Node]:
    """The graph's nodes, where each BatchNormalization in training mode reads copies of its running statistics.

    ONNX Runtime's CPU kernel (1.31 and before) writes the new ones over the old ones, whoever else reads them, even
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
