"""Recompute or keep: which values of a forward pass are saved for its backward pass, and which are cheap to make again.

Compare Jain et al., "Checkmate" (MLSys 2020), and the min-cut partitioner of PyTorch's functorch; the choice here is
greedy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ox.core.operator import OPS
from ox.graph.ir import Graph, Node, Value

LONGEST = 16  # nodes that may run again for one value


@dataclass(frozen=True)
class Choice:
    """What is kept between the passes, and the nodes that run again at the start of the backward pass, in order."""

    kept: list[Value]
    recomputed: list[Node]

    @property
    def bytes(self) -> int:
        return sum(map(size_of, self.kept))


def choose(nodes: Sequence[Node], wanted: Sequence[Value], free: Collection[Value], budget: int) -> Choice:
    """Choose what to keep in at most `budget` bytes, with as little as possible to compute again.

    Everything is kept if it fits. Else pointwise operators and movement run again, those first that save the most bytes
    for each element that they compute, until the rest fits or nothing cheap saves more; so the result may be above the
    budget. Exact: what runs again gives the same bits. Random operators, products and reductions never run again.

    Args:
        nodes: of the forward pass, in the order in which they run.
        wanted: values of the forward pass that the backward pass reads.
        free: those that cost nothing to keep: parameters, constants, inputs and results that the caller holds anyway.
    """
    search = _Search(nodes, set(free))
    kept = dict.fromkeys(v for v in wanted if v not in search.free)
    while sum(map(size_of, kept)) > budget:
        better = search.better(kept)
        if better is None:
            break
        kept = better
    again: set[Node] = set()
    for v in wanted:
        again |= search.closure(v, kept).nodes
    return Choice(list(kept), [node for node in nodes if node in again])


def recompute(backward: Graph, choice: Choice) -> None:
    """Let a backward pass make the values again that are not kept: nodes come in front, inputs for them go.

    The values that the nodes read from outside become inputs behind the others, in the order of `choice.kept`, unless
    they are inputs or constants already; those that nothing reads go.
    """
    copies = [replace(n, inputs=list(n.inputs), attributes=dict(n.attributes)) for n in choice.recomputed]
    made = {v for n in copies for v in n.outputs}
    backward.nodes = [*copies, *backward.nodes]
    read = {v for n in backward.nodes for v in n.inputs if v is not None} | set(backward.outputs)
    backward.inputs = [v for v in backward.inputs if v not in made]
    there = {*backward.inputs, *backward.constants}
    backward.inputs += [v for v in choice.kept if v in read and v not in there]


def size_of(value: Value) -> int:
    """Bytes, in the recorded run."""
    count = value.dtype.itemsize if value.dtype is not None else 8
    for size in value.shape or ():
        count *= size
    return count


def is_cheap(node: Node) -> bool:
    """Whether a node computes each element from few others, or moves them."""
    op = OPS.get(node.key)
    if op is None or op.random or op.data_dependent_shape or any(True for _ in node.subgraphs()):
        return False
    return op.kind == "pointwise" or _is_free(node)


def _is_free(node: Node) -> bool:
    """Whether a node makes a view of its input, or casts it."""
    op = OPS.get(node.key)
    return op is not None and op.view and (op.moves or op.kind == "conversion")


@dataclass(frozen=True)
class _Closure:
    """What makes a value again: nodes, and the values that have to be kept for it which are not."""

    nodes: set[Node]
    missing: tuple[Value, ...]


class _Search:
    """Looks for what to keep less."""

    def __init__(self, nodes: Sequence[Node], free: set[Value]) -> None:
        self.producer = {v: node for node in nodes for v in node.outputs}
        self.free = free
        self._known_roots: dict[Value, set[Value]] = {}
        self._cheap = {node: is_cheap(node) for node in nodes}

    def closure(self, value: Value, kept: Collection[Value], without: Value | None = None) -> _Closure:
        """How to make a value from what is kept, `without` one of it, or free."""
        nodes: set[Node] = set()
        missing: dict[Value, None] = {}
        todo = [value]
        while todo:
            v = todo.pop()
            node = self.producer.get(v)
            if (v in kept and v is not without) or v in self.free or node in nodes:
                continue
            if node is None or not self._cheap[node] or len(nodes) == LONGEST:
                missing[v] = None
                continue
            nodes.add(node)
            todo.extend(w for w in node.inputs if w is not None)
        return _Closure(nodes, tuple(missing))

    def _also_made(self, roots: Collection[Value], kept: Collection[Value], besides: Value) -> list[Value]:
        """Kept values that more of `roots` could help to make."""
        return [w for w in kept if w is not besides and not self._roots(w).isdisjoint(roots)] if roots else []

    def _roots(self, value: Value) -> set[Value]:
        """The values that stand where a walk from this one ends, if nothing is kept."""
        known = self._known_roots.get(value)
        if known is None:
            known = self._known_roots[value] = set(self.closure(value, ()).missing)
        return known

    def better(self, kept: dict[Value, None]) -> dict[Value, None] | None:
        """What is kept after the best single change; None if none makes it less."""
        before = sum(map(size_of, kept))
        best: tuple[float, dict[Value, None]] | None = None
        for v in kept:
            found = self.closure(v, kept, without=v)
            if v in found.missing:
                continue
            after = {**{w: None for w in kept if w is not v}, **dict.fromkeys(found.missing)}
            work = _elements(found.nodes)
            for w in self._also_made(found.missing, kept, v):
                again = self.closure(w, after, without=w)
                if not again.missing:
                    del after[w]
                    work += _elements(again.nodes)
            saved = before - sum(map(size_of, after))
            if saved > 0 and (best is None or saved / work > best[0]):
                best = saved / work, after
        return None if best is None else best[1]


def _elements(nodes: Collection[Node]) -> int:
    """Elements to compute; what only moves costs little, and counts one."""
    count = 1
    for node in nodes:
        if not _is_free(node):
            count += sum(size_of(v) // (v.dtype.itemsize if v.dtype is not None else 8) for v in node.outputs)
    return count
