"""Two recordings of one function at two sizes must be one graph. Where they are not, a size leaked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ox.graph.form import Graph, Node, Value


@dataclass(frozen=True)
class Leak:
    """A place where the graph depends on the size it was recorded at."""

    node: Node | None
    what: str
    first: str
    second: str

    @property
    def place(self) -> str:
        return self.node.place if self.node is not None else ""


def find_leak(a: Graph, b: Graph) -> Leak | None:
    """The first difference between two recordings, or None when they are the same graph."""
    pairs: dict[Value, Value] = dict(zip(a.inputs, b.inputs, strict=True))
    for m, n in zip(a.nodes, b.nodes, strict=False):
        if (m.op_type, m.domain, len(m.inputs), len(m.outputs)) != (n.op_type, n.domain, len(n.inputs), len(n.outputs)):
            return Leak(m, "the code took another path", m.op_type, f"{n.op_type} ({n.place})")
        if not _same_attributes(m, n):
            name = next(k for k in m.attributes if not _equal(m.attributes[k], n.attributes.get(k)))
            return Leak(m, f"attribute {name} of {m.op_type}", str(m.attributes[name]), str(n.attributes.get(name)))
        for v, w in zip(m.inputs, n.inputs, strict=True):
            leak = _compare_values(a, b, pairs, m, v, w)
            if leak is not None:
                return leak
        pairs.update(zip(m.outputs, n.outputs, strict=True))
    if len(a.nodes) != len(b.nodes):
        longer = a.nodes if len(a.nodes) > len(b.nodes) else b.nodes
        extra = longer[min(len(a.nodes), len(b.nodes))]
        return Leak(extra, "the code took another path", f"{len(a.nodes)} operators", f"{len(b.nodes)} operators")
    for v, w in zip(a.outputs, b.outputs, strict=True):
        if v.dtype != w.dtype or len(v.shape or ()) != len(w.shape or ()):
            return Leak(None, f"output '{v.name}'", f"{v.dtype} {v.shape}", f"{w.dtype} {w.shape}")
    return None


def find_fixed(a: Graph, b: Graph) -> Node | None:
    """The first node whose inputs changed their size between the recordings, while its output, which no reduction
    made, kept a size from the first: ``x.reshape(2, -1)`` at batch 2 and 3."""
    for m, n in zip(a.nodes, b.nodes, strict=False):
        before = [
            (v.shape, w.shape) for v, w in zip(m.inputs, n.inputs, strict=True) if v is not None and w is not None
        ]
        if (
            m.op_type in ("Reshape", "Expand", "Slice", "Split", "Pad")
            and before
            and before[0][0] != before[0][1]
            and m.outputs[0].shape is not None
            and n.outputs[0].shape is not None
            and m.outputs[0].shape[:1] == n.outputs[0].shape[:1]
        ):
            return m
    return None


def _compare_values(
    a: Graph, b: Graph, pairs: dict[Value, Value], m: Node, v: Value | None, w: Value | None
) -> Leak | None:
    if v is None or w is None:
        return None if v is w else Leak(m, f"an optional input of {m.op_type}", str(v), str(w))
    if v in pairs:
        return None if pairs[v] is w else Leak(m, f"an input of {m.op_type}", v.name, w.name)
    x, y = a.constants.get(v), b.constants.get(w)
    if x is None or y is None:
        return Leak(m, f"an input of {m.op_type}", v.name, w.name)
    if x.dtype != y.dtype or x.shape != y.shape or x.tobytes() != y.tobytes():
        return Leak(m, f"a constant that {m.op_type} received", _short(x), _short(y))
    pairs[v] = w
    return None


def _short(array: np.ndarray) -> str:  # type: ignore[type-arg]
    return str(array.tolist()) if array.size <= 8 else f"{array.dtype} {list(array.shape)}"


def _same_attributes(m: Node, n: Node) -> bool:
    return m.attributes.keys() == n.attributes.keys() and all(
        _equal(v, n.attributes[k]) for k, v in m.attributes.items()
    )


def _equal(a: object, b: object) -> bool:
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else a == b
