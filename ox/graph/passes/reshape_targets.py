"""Reshape and Expand to sizes that are constants of the code: 0 and -1 in place of sizes that are computed."""

from __future__ import annotations

import numpy as np

from ox.core.operator import kind_of
from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.polynomial import Polynomial
from ox.graph.passes.size_analysis import analyze_sizes
from ox.graph.passes.symbolic_sizes import Known, Sizes, SymbolicSizes
from ox.graph.passes.walk import Walk

ONE = Polynomial.of(1)


def simplify_reshape_targets(graph: Graph, known: Known) -> bool:
    """Let each Reshape say its sizes by numbers, by a 0 for a size that its input has at the same place, and by one -1;
    join it with one before it; drop it and Expand where nothing changes. Whether anything changed.

    Exact, where the values have elements: a -1 is refused for those that have none.

    Args:
        known: inferred sizes by the names of values.
    """
    found = analyze_sizes(graph, known)
    walk = Walk(graph)
    for node in walk:
        source, result = node.inputs[0] if node.inputs else None, node.outputs[0]
        before, after = found.of(source), found.of(result)
        if node.domain or source is None or before is None or after is None:
            walk.keep(node)
        elif kind_of(node.key) in ("reshape", "repetition") and before == after:
            walk.stand_for(node, [source])
        else:
            if node.op_type == "Expand":
                _expand(walk, node, found, before, after)
            elif kind_of(node.key) == "reshape":
                _reshape(walk, node, found, after)
            walk.keep(node)
    return walk.changed


def target(before: Sizes, after: Sizes) -> list[int] | None:
    """Sizes for a Reshape from `before` to `after`; None where two of them can be said by no number."""
    numbers = [size.number for size in after]
    if 0 in numbers:
        return None
    open_axes = [axis for axis, n in enumerate(numbers) if n is None]
    copied = [axis for axis in open_axes if axis < len(before) and before[axis] == after[axis]]
    if len(open_axes) - len(copied) > 1:
        return None
    return [n if n is not None else 0 if axis in copied else -1 for axis, n in enumerate(numbers)]


def _reshape(walk: Walk, node: Node, found: SymbolicSizes, after: Sizes) -> None:
    """Read what stands before other Reshapes, where numbers can say the sizes from there."""
    source = node.inputs[0]
    inner = walk.maker(source)
    origin = inner.inputs[0] if inner is not None and kind_of(inner.key) == "reshape" else None
    for start in (origin, source):
        before = found.of(start)
        if start is None or before is None:
            continue
        sizes = target(before, after)
        joined = start is origin
        if sizes is None or not (joined or _is_computed(node, found)):
            continue
        node.op_type, node.attributes = "Reshape", {}
        node.inputs = [start, walk.constant(np.array(sizes, np.int64), node.outputs[0])]
        walk.changed = True
        return


def _is_computed(node: Node, found: SymbolicSizes) -> bool:
    """Whether the sizes are an input that is no constant."""
    return node.op_type == "Reshape" and found.array(node.inputs[1]) is None


def _expand(walk: Walk, node: Node, found: SymbolicSizes, before: Sizes, after: Sizes) -> None:
    """A 1 asks for the size that is there."""
    if found.array(node.inputs[1]) is not None:
        return
    aligned = (ONE,) * (len(after) - len(before)) + before
    sizes = [1 if old == new else new.number for old, new in zip(aligned, after, strict=True)]
    if None not in sizes:
        value: Value = walk.constant(np.array(sizes, np.int64), node.outputs[0])
        node.inputs = [node.inputs[0], value]
        walk.changed = True
