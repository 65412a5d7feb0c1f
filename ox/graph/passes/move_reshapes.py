"""Reshapes around operators that work row by row go: a product, an activation and a product need none in between."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ox.core.operator import OPS
from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.size_analysis import analyze_sizes
from ox.graph.passes.symbolic_sizes import Known, Sizes, SymbolicSizes


@dataclass
class _Region:
    """The operators between a Reshape and those above it that it undoes."""

    nodes: list[Node] = field(default_factory=list)
    sources: dict[Value, Value] = field(default_factory=dict)  # by the result of a Reshape, what it reads


def move_reshapes(graph: Graph, known: Known) -> bool:
    """Let the operators before a Reshape run on values of its sizes, where Reshapes of such values are all that they
    read, besides what is broadcast along rows. Whether any Reshape went.

    Linear layers compute on [rows, features]: two of them with an activation in between have two Reshapes there that
    undo each other. Exact.

    Args:
        known: inferred sizes by the names of values.
    """
    found = analyze_sizes(graph, known)
    changed, moved = False, True
    while moved:
        moved = False
        readers, producers = graph.reads(), graph.producers()
        for last in graph.nodes:
            region = _region(last, found, readers, producers) if last.key == "Reshape" else None
            if region is not None:
                _move(graph, last, region, found)
                readers, producers = graph.reads(), graph.producers()
                changed = moved = True
    return changed


def _region(
    last: Node, found: SymbolicSizes, readers: Counter[Value | None], producers: dict[Value, Node]
) -> _Region | None:
    """What may run on the sizes of the Reshape's result; None where a value is read from elsewhere or does not fit."""
    sizes, before = found.of(last.outputs[0]), found.of(last.inputs[0])
    region = _Region()
    todo = [last.inputs[0]]
    reads: Counter[Value | None] = Counter(todo)
    while todo:
        value = todo.pop()
        node = producers.get(value) if value is not None else None
        if node is None or sizes is None or before is None or found.of(value) != before:
            return None
        if node.key == "Reshape":
            if value is last.inputs[0] or node.inputs[0] is None or found.of(node.inputs[0]) != sizes:
                return None
            region.sources[node.outputs[0]] = node.inputs[0]
            continue
        if node in region.nodes:
            continue
        if len(node.outputs) != 1 or not _runs_on_rows(node, before, sizes):
            return None
        region.nodes.append(node)
        for i, v in enumerate(node.inputs):
            if v is not None and not _fits_both(found.of(v), before, sizes, i):
                reads[v] += 1
                todo.append(v)
    if any(readers[node.outputs[0]] != reads[node.outputs[0]] for node in region.nodes):
        return None
    return region if region.sources else None


def _runs_on_rows(node: Node, before: Sizes, sizes: Sizes) -> bool:
    """Whether the operator works on each element, or on each row where rows stay rows."""
    op = OPS.get(node.key)
    if op is None or op.domain:
        return False
    if op.batching == "axis":
        axis = node.attributes.get("axis", -1)
        return axis in (-1, len(before) - 1) and before[-1:] == sizes[-1:]
    return op.batching == "pointwise"


def _fits_both(found: Sizes | None, before: Sizes, sizes: Sizes, place: int) -> bool:
    """Whether a value is broadcast alike to both sizes: one number, or one for each element of a row."""
    if found is None or len(found) > 1:
        return False
    return not found or found[0].number == 1 or (found[0] == before[-1] == sizes[-1] and len(before) > 1)


def _move(graph: Graph, last: Node, region: _Region, found: SymbolicSizes) -> None:
    """Read above the first Reshapes; what the last one gave is what the operators give."""
    shape = last.outputs[0].shape
    made: dict[Value, Value] = {}
    for node in region.nodes:  # new values: what is known of the old ones by their names is no longer so
        (old,) = node.outputs
        made[old] = Value(f"{old.name}/rows", old.dtype, None, shape)
        found.note(made[old], found.of(last.outputs[0]))
    made[last.inputs[0]] = last.outputs[0]  # type: ignore[index]
    for node in region.nodes:
        node.inputs = [None if v is None else made.get(v, region.sources.get(v, v)) for v in node.inputs]
        node.outputs = [made[v] for v in node.outputs]
        if OPS[node.key].batching == "axis":
            node.attributes = {**node.attributes, "axis": -1}
    graph.nodes = [node for node in graph.nodes if node is not last]
