"""What OpenCV's DNN module takes otherwise than ONNX means it."""

from __future__ import annotations

from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.shape_inference import Dims


def subtract_broadcast(graph: Graph, dims: Dims) -> bool:
    """Subtract the negative where something smaller is added to a convolution. Exact. Whether there was such a sum.

    OpenCV 5 makes an Add behind a Conv a part of it, and refuses what has not the sizes of the result.
    """
    producers = graph.producers()
    nodes: list[Node] = []
    changed = False
    for node in graph.nodes:
        inputs = list(node.inputs)
        if node.key == "Add" and node.outputs[0].name:
            inputs.sort(key=lambda v: v is None or v not in producers or producers[v].key != "Conv")
        first, second = [*inputs, None, None][:2]
        sum_of_conv = first in producers and producers[first].key == "Conv" and node.key == "Add"
        if first is None or second is None or not sum_of_conv or first.shape == second.shape:
            nodes.append(node)
            continue
        negative = Value("negative", second.dtype, second.dims, second.shape)
        nodes.append(Node("Neg", "", [second], [negative], where=node.where, module=node.module))
        nodes.append(Node("Sub", "", [first, negative], node.outputs, where=node.where, module=node.module))
        changed = True
    graph.nodes = nodes
    return changed
