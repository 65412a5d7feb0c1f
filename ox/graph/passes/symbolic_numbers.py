"""The elements of int64 values that are computed from sizes, as polynomials."""

from __future__ import annotations

from ox.core.operator import kind_of
from ox.graph.ir import Node
from ox.graph.passes.polynomial import Polynomial, product
from ox.graph.passes.symbolic_sizes import Sizes, SymbolicSizes


def numbers_of(known: SymbolicSizes, node: Node) -> Sizes | None:
    """What a node's only result holds; None where that is no vector or number of sizes."""
    result = node.outputs[0]
    if node.domain or str(result.dtype) != "int64":
        return None
    sizes = known.of(result)
    if sizes is None or len(sizes) > 1:
        return None
    if node.op_type == "Shape":
        of = known.of(node.inputs[0])
        return None if of is None else of[slice(node.attributes.get("start") or 0, node.attributes.get("end"))]
    if node.op_type == "Size":
        of = known.of(node.inputs[0])
        return None if of is None else (product(of),)
    inputs = [known.numbers.get(v) if v is not None else None for v in node.inputs]
    first = inputs[0] if inputs else None
    if node.op_type == "Concat":
        return None if any(part is None for part in inputs) else tuple(n for part in inputs for n in part or ())
    if first is None:
        return None
    kind = kind_of(node.key)
    if kind in ("identity", "reshape") or (kind == "conversion" and str(node.inputs[0].dtype) == "int64"):  # type: ignore[union-attr]
        return first
    if node.op_type == "Gather":
        return _gather(known, node, first)
    if node.op_type == "Slice":
        return _slice(known, node, first)
    if node.op_type in ("Add", "Sub", "Mul", "Div") and inputs[1] is not None:
        return _arithmetic(known, node.op_type, first, inputs[1])
    return None


def _gather(known: SymbolicSizes, node: Node, numbers: Sizes) -> Sizes | None:
    places = known.constant(node.inputs[1])
    if places is None or any(not -len(numbers) <= place < len(numbers) for place in places):
        return None
    return tuple(numbers[place] for place in places)


def _slice(known: SymbolicSizes, node: Node, numbers: Sizes) -> Sizes | None:
    start, end, _, step = (known.constant(v) for v in [*node.inputs[1:], None, None][:4])
    if start is None or end is None or (len(node.inputs) > 4 and node.inputs[4] is not None and step != [1]):
        return None
    return numbers[start[0] : end[0]]


def _arithmetic(known: SymbolicSizes, kind: str, a: Sizes, b: Sizes) -> Sizes | None:
    count = max(len(a), len(b))
    if {len(a), len(b)} - {1, count}:
        return None
    pairs = zip(a * (count // len(a)), b * (count // len(b)), strict=True)
    return tuple(_combined(known, kind, m, n) for m, n in pairs)


def _combined(known: SymbolicSizes, kind: str, a: Polynomial, b: Polynomial) -> Polynomial:
    if kind == "Add":
        return a + b
    if kind == "Sub":
        return a - b
    if kind == "Mul":
        return a * b
    return (a.divided(b) if b.number != 0 else None) or known.same_as(("Div", a, b))
