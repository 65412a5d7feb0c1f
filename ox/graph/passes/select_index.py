"""``x[:, 0]`` as one Gather in place of a Slice and a Squeeze."""

from __future__ import annotations

import numpy as np

from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.walk import Walk

LAST = 2**31 - 1  # an end from here on is no end


def gather_selected(graph: Graph) -> bool:
    """Replace each Squeeze of a Slice of one element along one axis. Whether there were any.

    Exact. Both numbers must be constants of the code, and nothing else may read the Slice. For inference: the gradient
    of a Gather adds up rows, that of a Slice does not need to.
    """
    readers = graph.reads()
    walk = Walk(graph)
    for node in walk:
        part = walk.maker(node.inputs[0]) if node.key == "Squeeze" else None
        place = _place(node, part, walk) if part is not None and readers[part.outputs[0]] == 1 else None
        if part is not None and place is not None:
            index, axis = place
            node.op_type, node.attributes = "Gather", {"axis": axis}
            node.inputs = [part.inputs[0], walk.constant(np.array(index, np.int64), node.outputs[0])]
            walk.changed = True
        walk.keep(node)
    return walk.changed


def _place(squeeze: Node, part: Node, walk: Walk) -> tuple[int, int] | None:
    """The index and the axis, where a Slice takes one element and the Squeeze drops that axis."""
    if part.key != "Slice" or len(part.inputs) < 4:
        return None
    start, end, axis, dropped = (_only(v, walk) for v in [*part.inputs[1:4], *squeeze.inputs[1:2]])
    step = _only(part.inputs[4], walk) if len(part.inputs) > 4 and part.inputs[4] is not None else 1
    rank = len(part.outputs[0].shape) if part.outputs[0].shape is not None else None
    if start is None or end is None or axis is None or dropped is None or step != 1 or rank is None:
        return None
    one = end == start + 1 if start != -1 else end >= LAST
    return (start, axis % rank) if one and axis % rank == dropped % rank else None


def _only(value: Value | None, walk: Walk) -> int | None:
    array = walk.number(value)
    return int(array.reshape(())) if array is not None and array.size == 1 else None
