"""Replaces the only varying size in the target of a Reshape by -1."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ox.graph.ir import Graph, Node, Value


def infer_reshape_sizes(a: Graph, b: Graph) -> None:
    """In two recordings of one function, write -1 for that size, and a number for a -1 of the code's own.

    ``windows.view(int(windows.shape[0] / 4), 7, 7, -1)`` is recorded as ``[2, 7, 7, -1]``, then ``[3, 7, 7, -1]``, and
    becomes ``[-1, 7, 7, 96]``. A Reshape keeps the number of elements, so the size that varies is what the others
    leave: no other value could run. A -1 of the code's own becomes the number that it was in both. Where that was by
    chance, another recording shows it: there the -1 is another number.
    """
    makers = [_targets(a), _targets(b)]
    for m, n in zip(a.nodes, b.nodes, strict=False):
        if m.key != n.key:
            return
        shapes = m.outputs[0].shape, n.outputs[0].shape
        if m.key != "Reshape" or not all(shapes) or 0 in {size for each in shapes for size in each or ()}:
            continue
        # the target is a constant of the code, or a Concat of constants and of sizes that are computed
        first, second = (made.get(node.inputs[1], node) for made, node in zip(makers, (m, n), strict=True))  # type: ignore[arg-type]
        _rewrite_targets(a, first, b, second, *(each or () for each in shapes))


def _targets(graph: Graph) -> dict[Value, Node]:
    """The Concats whose result a single node reads, by that."""
    uses = Counter(value for node in graph.nodes for value in node.inputs)
    return {node.outputs[0]: node for node in graph.nodes if node.key == "Concat" and uses[node.outputs[0]] == 1}


def _rewrite_targets(a: Graph, m: Node, b: Graph, n: Node, shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    """Rewrite the numbers among the parts of both targets, if one of them is what differs."""
    places = range(1, 2) if m.key == "Reshape" else range(len(m.inputs))
    if len(m.inputs) != len(n.inputs):
        return
    changes: list[tuple[int, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]] = []
    at, leaks = 0, 0
    for place in places:
        x, y = a.constants.get(m.inputs[place]), b.constants.get(n.inputs[place])  # type: ignore[arg-type]
        if x is None or y is None or x.shape != y.shape:
            if x is not None or y is not None:
                return
            at += 1  # a size that is computed, of one element
            continue
        made = x.copy()
        for i, (one, two, size, size_there) in enumerate(zip(x, y, shape[at:], other[at:], strict=False)):
            if two == -1 and (size if one == -1 else one) == size_there:
                made[i] = size_there
            elif one != two:
                made[i], leaks = -1, leaks + 1
            elif one == -1:
                return
        changes.append((place, made))
        at += len(x)
    if leaks == 1 and at == len(shape):
        for place, made in changes:
            _set(a, m, place, made)
            _set(b, n, place, made)


def _set(graph: Graph, node: Node, place: int, array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    before = node.inputs[place]
    if before is None or np.array_equal(graph.constants[before], array):
        return
    made = Value(f"{before.name}/{node.outputs[0].name}_{place}", before.dtype, array.shape, array.shape)
    graph.constants[made] = array
    node.inputs[place] = made
