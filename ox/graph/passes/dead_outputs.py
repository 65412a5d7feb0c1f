"""Removes unused outputs and captured inputs of If, Loop and Scan."""

from __future__ import annotations

from ox.graph.ir import Graph, Node, Value


def remove_dead_outputs(node: Node, needed: set[Value]) -> None:
    """Drop what is dead in a node's subgraphs, and the outputs and captured inputs that are not used.

    Args:
        needed: the values of the graph around it that something reads.
    """
    from ox.graph.passes.cleanup import remove_dead

    graphs = [graph for _, graph in node.subgraphs()]
    if not graphs:
        return
    # what a loop carries goes into its next step, used or not; the other outputs stand one for one in the subgraph
    first, skip = _first_removable(node, graphs[0])
    dropped = [i for i, v in enumerate(node.outputs) if i >= first and v not in needed]
    if len(dropped) == len(node.outputs):
        dropped = dropped[1:]
    for graph in graphs:
        graph.outputs = [v for i, v in enumerate(graph.outputs) if i - skip not in dropped]
        remove_dead(graph)
    if node.op_type == "Scan":
        for name in ("scan_output_axes", "scan_output_directions"):
            if node.attributes.get(name) is not None:
                node.attributes[name] = [a for i, a in enumerate(node.attributes[name]) if i + first not in dropped]
    node.outputs = [v for i, v in enumerate(node.outputs) if i not in dropped]
    _uncapture(node, graphs)


def _first_removable(node: Node, graph: Graph) -> tuple[int, int]:
    """The first output that may go, and how many outputs the subgraph has before those of the node."""
    if node.op_type == "Loop":
        return len(graph.inputs) - 2, 1
    if node.op_type == "Scan":
        return len(graph.inputs) - int(node.attributes["num_scan_inputs"]), 0
    return 0, 0


def _uncapture(node: Node, graphs: list[Graph]) -> None:
    """Drop captures that no subgraph reads, and list twice-captured values once."""
    count = node.captured
    start = len(node.inputs) - count
    outside = [v for v in node.inputs[start:] if v is not None]
    read = [{v for n in graph.nodes for v in n.inputs} | set(graph.outputs) for graph in graphs]
    kept = list(
        dict.fromkeys(
            v for i, v in enumerate(outside) if any(g.captures[i] in r for g, r in zip(graphs, read, strict=True))
        )
    )
    for graph in graphs:
        graph.share([(v,) for v in outside], [(v,) for v in kept])
    node.inputs[start:] = kept
