"""Pixels from channels: Reshape, Transpose and Reshape are a DepthToSpace."""

from __future__ import annotations

from ox.graph.ir import Graph, Node
from ox.graph.passes.polynomial import Polynomial
from ox.graph.passes.size_analysis import analyze_sizes
from ox.graph.passes.symbolic_sizes import Known, Sizes, SymbolicSizes
from ox.graph.passes.walk import Walk

MODES = {(0, 1, 4, 2, 5, 3): "CRD", (0, 3, 4, 1, 5, 2): "DCR"}  # the order of channels, as ONNX calls it


def find_depth_to_space(graph: Graph, known: Known) -> bool:
    """Replace the three operators that `pixel_shuffle` records. Whether there were any.

    Exact. Nothing else may read what lies between.

    Args:
        known: inferred sizes by the names of values.
    """
    found = analyze_sizes(graph, known)
    readers = graph.reads()
    walk = Walk(graph)
    for node in walk:
        turn = walk.maker(node.inputs[0]) if node.key == "Reshape" else None
        first = walk.maker(turn.inputs[0]) if turn is not None and turn.key == "Transpose" else None
        if turn is not None and first is not None and first.key == "Reshape":
            mode = MODES.get(tuple(turn.attributes.get("perm") or ()))
            between = readers[turn.outputs[0]] == readers[first.outputs[0]] == 1
            block = _block(first, node, mode, found) if mode is not None and between else None
            if block is not None:
                node.op_type, node.inputs = "DepthToSpace", first.inputs[:1]
                node.attributes = {"blocksize": block, "mode": mode}
                walk.changed = True
        walk.keep(node)
    return walk.changed


def _block(first: Node, last: Node, mode: str, found: SymbolicSizes) -> int | None:
    """How many pixels a side has that channels become; None where the sizes are others."""
    before, inside, after = (found.of(v) for v in (first.inputs[0], first.outputs[0], last.outputs[0]))
    if before is None or inside is None or after is None or not len(before) == len(after) == 4 or len(inside) != 6:
        return None
    batch, *channels, height, width = inside
    if mode == "CRD":
        depth, side, other = channels
    else:
        side, other, depth = channels
    block = side.number
    if block is None or side != other:
        return None
    return block if _fits(block, (batch, depth, height, width), before, after) else None


def _fits(block: int, sizes: Sizes, before: Sizes, after: Sizes) -> bool:
    """Whether the result is `block` times as high and as wide, with as many fewer channels."""
    batch, depth, height, width = sizes
    r = Polynomial.of(block)
    return before == (batch, depth * r * r, height, width) and after == (batch, depth, height * r, width * r)
