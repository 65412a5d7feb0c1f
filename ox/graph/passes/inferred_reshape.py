"""Replaces the only varying size in the target of a Reshape by -1."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ox.graph.ir import Graph, Node, Value


def infer_reshape_sizes(a: Graph, b: Graph, several: bool = False) -> None:
    """In two recordings of one function, write -1 for that size, and a number for a -1 of the code's own.

    ``windows.view(int(windows.shape[0] / 4), 7, 7, -1)`` is recorded as ``[2, 7, 7, -1]``, then ``[3, 7, 7, -1]``, and
    becomes ``[-1, 7, 7, 96]``. A Reshape keeps the number of elements, so the size that varies is what the others
    leave: no other value could run.

    Args:
        several: more sizes than the batch may vary. Then a -1 of the code's own may be one of those, equal in both
            recordings by chance, and such a Reshape stays as it is.
    """
    makers = [_targets(a), _targets(b)]
    for m, n in zip(a.nodes, b.nodes, strict=False):
        if m.key != n.key:
            return
        axis = _varying(m, n) if m.key == "Reshape" else None
        if axis is None:
            continue
        # the target is a constant of the code, or a Concat of constants and of sizes that are computed
        first, second = (made.get(node.inputs[1], node) for made, node in zip(makers, (m, n), strict=True))  # type: ignore[arg-type]
        _rewrite_targets(a, first, b, second, axis, m.outputs[0].shape or (), several)


def _targets(graph: Graph) -> dict[Value, Node]:
    """The Concats whose result a single node reads, by that."""
    uses = Counter(value for node in graph.nodes for value in node.inputs)
    return {node.outputs[0]: node for node in graph.nodes if node.key == "Concat" and uses[node.outputs[0]] == 1}


def _varying(m: Node, n: Node) -> int | None:
    """The only axis in which the results differ."""
    first, second = m.outputs[0].shape, n.outputs[0].shape
    if not first or not second or len(first) != len(second) or 0 in first or 0 in second:
        return None
    axes = [axis for axis, (s, t) in enumerate(zip(first, second, strict=True)) if s != t]
    return axes[0] if len(axes) == 1 else None


def _rewrite_targets(a: Graph, m: Node, b: Graph, n: Node, axis: int, shape: tuple[int, ...], several: bool) -> None:
    """Rewrite the numbers among the parts of both targets, where the one at `axis` is what differs."""
    places = range(1, 2) if m.key == "Reshape" else range(len(m.inputs))
    if len(m.inputs) != len(n.inputs):
        return
    changes: list[tuple[int, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]] = []
    at, leaked = 0, False
    for place in places:
        x, y = a.constants.get(m.inputs[place]), b.constants.get(n.inputs[place])  # type: ignore[arg-type]
        if x is None or y is None or x.shape != y.shape:
            if x is not None or y is not None:
                return
            at += 1  # a size that is computed, of one element
            continue
        made = x.copy()
        for i in range(len(x)):
            if x[i] != y[i] and at + i == axis:
                made[i], leaked = -1, True
            elif x[i] == -1 and not several:
                made[i] = shape[at + i]
            elif x[i] != y[i] or x[i] == -1:
                return
        changes.append((place, made))
        at += len(x)
    if leaked and at == len(shape):
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
