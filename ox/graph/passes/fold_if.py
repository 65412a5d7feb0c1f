"""Replaces an If with a constant condition by the nodes of the branch that runs."""

from __future__ import annotations

from ox.graph.ir import Graph, Node, Value


def fold_constant_ifs(graph: Graph) -> bool:
    """Inline the branches of constant conditions, in subgraphs too. Returns whether there were any."""
    nodes: list[Node] = []
    found = False
    for node in graph.nodes:
        for _, inside in node.subgraphs():
            found = fold_constant_ifs(inside) or found
        cond = node.inputs[0] if node.key == "If" else None
        if cond is None or cond not in graph.constants or cond in graph.owned:
            nodes.append(node)
            continue
        found = True
        nodes += _branch_nodes(graph, node, bool(graph.constants[cond].reshape(-1)[0]))
    graph.nodes = nodes
    return found


def _branch_nodes(graph: Graph, node: Node, yes: bool) -> list[Node]:
    """The nodes of one branch, reading what the call captured and making what it gave."""
    branch: Graph = node.attributes["then_branch" if yes else "else_branch"]
    stands: dict[Value, Value | None] = dict(
        zip(branch.captures, node.inputs[len(node.inputs) - len(branch.captures) :], strict=True)
    )
    made = dict(zip(branch.outputs, node.outputs, strict=True))
    graph.constants.update(branch.constants)
    copies: list[Node] = []
    if len(made) < len(node.outputs):  # one value given twice
        copies = [
            Node("Identity", "", [made[v]], [w])
            for v, w in zip(branch.outputs, node.outputs, strict=True)
            if made[v] is not w
        ]
    for each in branch.nodes:
        if not each.place:
            each.module, each.where = node.module, node.where
        each.inputs = [stands.get(v, made.get(v, v)) if v is not None else None for v in each.inputs]
        each.outputs = [made.get(v, v) for v in each.outputs]
    produced = {v for each in branch.nodes for v in each.outputs}
    for v, w in made.items():  # given as it was captured, or a constant
        if w not in produced:
            copies.append(Node("Identity", "", [stands.get(v, v)], [w]))
    return [*branch.nodes, *copies]
