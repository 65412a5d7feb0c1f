"""Two recordings of one function at two sizes must be one graph. Where they are not, a size leaked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ox.graph.array_bytes import same_bits
from ox.graph.ir import Array, Graph, Node, Value


@dataclass(frozen=True)
class Leak:
    """A place where the graph depends on the size it was recorded at."""

    node: Node | None
    what: str  # a noun: "a constant that Mul received"
    first: str
    second: str

    @property
    def place(self) -> str:
        return self.node.place if self.node is not None else ""


def find_leak(a: Graph, b: Graph) -> Leak | None:
    """The first difference between two recordings, or None when they are the same graph."""
    pairs: dict[Value, Value] = dict(zip(a.inputs, b.inputs, strict=True))
    if len(a.captures) != len(b.captures):
        return Leak(None, "the values read from outside", str(a.captures), str(b.captures))
    pairs.update(zip(a.captures, b.captures, strict=True))
    for m, n in zip(a.nodes, b.nodes, strict=False):
        if (m.key, len(m.inputs), len(m.outputs)) != (n.key, len(n.inputs), len(n.outputs)):
            return Leak(m, "the code's path", f"{m.op_type}", f"{n.op_type} ({n.place})")
        for name, value in m.attributes.items():
            if isinstance(value, Graph) and isinstance(n.attributes.get(name), Graph):
                inside = find_fixed_reshape(value, n.attributes[name]) or find_leak(value, n.attributes[name])
                if inside is not None:
                    return inside if inside.node is not None else replace(inside, node=m)
            elif not _equal(value, n.attributes.get(name)):
                return Leak(m, f"attribute {name} of {m.op_type}", str(value), str(n.attributes.get(name)))
        for v, w in zip(m.inputs, n.inputs, strict=True):
            leak = _compare_values(a, b, pairs, m, v, w)
            if leak is not None:
                return leak
        pairs.update(zip(m.outputs, n.outputs, strict=True))
    if len(a.nodes) != len(b.nodes):
        longer = a.nodes if len(a.nodes) > len(b.nodes) else b.nodes
        extra = longer[min(len(a.nodes), len(b.nodes))]
        return Leak(extra, "the code's path", f"{len(a.nodes)} operators", f"{len(b.nodes)} operators")
    for v, w in zip(a.outputs, b.outputs, strict=True):
        if v.dtype != w.dtype or len(v.shape or ()) != len(w.shape or ()):
            return Leak(None, f"output '{v.name}'", f"{v.dtype} {v.shape}", f"{w.dtype} {w.shape}")
    return None


def find_fixed_reshape(a: Graph, b: Graph) -> Leak | None:
    """The first Reshape or Expand to literal sizes that begin with the first size of recording `a`, though its input's
    first size is another in `b`: ``x.reshape(2, -1)`` at batch 2 and 3. `b` may be a recording that stopped early: then
    the operator at which it stopped counts too."""
    for i, m in enumerate(a.nodes):
        if m.op_type not in ("Reshape", "Expand") or m.domain or m.inputs[1] not in a.constants:
            continue
        target, shape = a.constants[m.inputs[1]], _shape(m.inputs[0])
        if i < len(b.nodes):
            n = b.nodes[i]
            if n.op_type != m.op_type or n.inputs[1] not in b.constants or not _equal(b.constants[n.inputs[1]], target):
                continue
            changed = _shape(n.inputs[0])[:1] != shape[:1]
        else:
            changed = i == len(b.nodes)
        if changed and target.size and shape and target[0] == shape[0]:
            return Leak(m, m.op_type, str(target[0]), str(target[0]))
    return None


def _shape(value: Value | None) -> tuple[int, ...]:
    return (value.shape if value is not None else None) or ()


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
    if x is not y and (x.dtype != y.dtype or x.shape != y.shape or not same_bits(x, y)):
        return Leak(m, f"a constant that {m.op_type} received", *_describe(x, y))
    pairs[v] = w
    return None


def _describe(x: Array, y: Array) -> tuple[str, str]:
    if max(x.size, y.size) == 1:
        return str(x.item()), str(y.item())
    if max(x.size, y.size) <= 8:
        return str(x.tolist()), str(y.tolist())
    if x.shape == y.shape:
        return f"{x.dtype} {list(x.shape)}", "other values"
    return f"{x.dtype} {list(x.shape)}", f"{y.dtype} {list(y.shape)}"


def _equal(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else bool(a == b)
