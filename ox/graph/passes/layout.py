"""Layout: pairs of Transposes around pointwise operators go."""

from __future__ import annotations

from collections import Counter

from ox.core.operator import OPS
from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.movement import permutation


def move_transposes(graph: Graph) -> bool:
    """Let pointwise operators between two Transposes run on the values as they lie, and one Transpose do what both did.

    Code that keeps its channels last has such pairs: a permute, an activation, the permute back. Exact. The first one
    stays for its other readers. It passes operators one by one, upwards from the second Transpose, where every other
    input is a single number or comes out of an equal Transpose, and nothing else reads what lies between. Whether any
    was moved.
    """
    readers = graph.reads()
    producers = graph.producers()
    changed = False
    for node in graph.nodes:
        if node.key == "Transpose" and (perm := permutation(node)) is not None:
            chain = _chain(node, producers, readers)
            if chain is not None:
                _move(node, perm, chain, producers)
                changed = True
    return changed


def _chain(last: Node, producers: dict[Value, Node], readers: Counter[Value | None]) -> list[Node] | None:
    """The pointwise nodes between a Transpose and the equal ones above it, from below; None where there are none."""
    found: list[Node] = []
    value = last.inputs[0]
    while value is not None and readers[value] == 1 and (node := producers.get(value)) is not None:
        if not _is_pointwise(node):
            return None
        found.append(node)
        large = [v for v in node.inputs if v is not None and _count(v) != 1]
        if not large or len(node.outputs) != 1 or any(v.shape is None for v in [*large, *node.outputs]):
            return None
        if any(len(v.shape or ()) != len(node.outputs[0].shape or ()) for v in large):
            return None
        above = [producers.get(v) for v in large]
        if all(n is not None and n.key == "Transpose" for n in above):
            perms = [permutation(n) for n in above if n is not None]
            return found if all(perm == perms[0] for perm in perms) else None
        if len(large) > 1:
            return None
        value = large[0]
    return None


def _is_pointwise(node: Node) -> bool:
    op = OPS.get(node.key)
    return op is not None and op.batching == "pointwise" and node.key != "Identity"


def _count(value: Value) -> int:
    """Elements; more than one where that is not known, and where the sizes may be others in another run."""
    count = 1
    for size in value.shape if value.shape is not None else (2,):
        count *= size
    return count if value.shape == () or value.dims == value.shape else max(count, 2)


def _move(last: Node, perm: list[int], chain: list[Node], producers: dict[Value, Node]) -> None:
    """Read above the first Transposes, and permute by both at the end."""
    top = chain[-1]
    first: list[int] = []
    for i, v in enumerate(top.inputs):
        above = producers.get(v) if v is not None else None
        if v is not None and _count(v) != 1 and above is not None:
            first = permutation(above) or []
            top.inputs[i] = above.inputs[0]
    inverse = [first.index(axis) for axis in range(len(first))]
    for node in chain:
        for v in node.outputs:
            assert v.shape is not None
            v.shape, v.dims = tuple(v.shape[axis] for axis in inverse), None
    last.attributes = {**last.attributes, "perm": [first[axis] for axis in perm]}
