"""Shape arithmetic: sizes that are known are constants, equal ones are computed once, and read from a value's Shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.size_analysis import analyze_sizes
from ox.graph.passes.symbolic_sizes import Known, Sizes
from ox.graph.passes.walk import Walk


def shorten_shape_arithmetic(graph: Graph, known: Known) -> bool:
    """Replace int64 values that hold sizes by constants, by equal ones, or by a Shape of a value with these sizes.

    Exact. ``Concat(Shape(x)[0:1], 8, 32)`` is ``Shape(y)`` where y is [batch, 8, 32], also as the target of a Reshape
    with a -1. Whether any was replaced.

    Args:
        known: inferred sizes by the names of values.
    """
    found = analyze_sizes(graph, known)
    walk = Walk(graph)
    first: dict[tuple[Sizes, int], Value] = {}  # which value holds these numbers, with so many dimensions
    runs: dict[Sizes, tuple[Value, int]] = {}  # which value has these sizes in a row, from which axis
    for value in [*graph.inputs, *graph.captures]:
        _note_runs(runs, value, found.of(value))
    for node in walk:
        numbers, result = found.numbers.get(node.outputs[0]), node.outputs[0]
        rank = len(found.of(result) or ())
        if numbers is not None and result not in graph.outputs:
            same = _constant(walk, result, numbers, rank) or first.get((numbers, rank))
            if same is not None:
                walk.stand_for(node, [same])
                continue
            if rank == 1 and numbers in runs:
                _read_shape(walk, node, *runs[numbers], len(numbers))
            first[numbers, rank] = result
        elif node.key == "Reshape" and (sizes := found.of(result)) is not None:
            told = found.numbers.get(node.inputs[1])  # type: ignore[arg-type]
            if told not in (None, sizes) and found.array(node.inputs[1]) is None:  # a -1 among computed ones
                _read_sizes(walk, node, sizes, first, runs)
        walk.keep(node)
        for value in node.outputs:
            _note_runs(runs, value, found.of(value))
    return walk.changed


def _read_sizes(
    walk: Walk,
    node: Node,
    sizes: Sizes,
    first: dict[tuple[Sizes, int], Value],
    runs: Mapping[Sizes, tuple[Value, int]],
) -> None:
    """Let a Reshape take its sizes from a value that holds them, or from a Shape."""
    target = first.get((sizes, 1))
    if target is None:
        if sizes not in runs:
            return
        target = Value(f"{node.outputs[0].name}/target", np.dtype(np.int64), (len(sizes),), (len(sizes),))
        reader = Node("Shape", "", [], [target], where=node.where, module=node.module)
        _read_shape(walk, reader, *runs[sizes], len(sizes))
        walk.keep(reader)
        first[sizes, 1] = target
    node.inputs, node.attributes = [node.inputs[0], target], {"allowzero": 1}
    walk.changed = True


def _constant(walk: Walk, like: Value, numbers: Sizes, rank: int) -> Value | None:
    known = [size.number for size in numbers]
    if None in known:
        return None
    array = np.array(known, np.int64)
    return walk.constant(array if rank else array.reshape(()), like)


def _note_runs(runs: dict[Sizes, tuple[Value, int]], value: Value, sizes: Sizes | None) -> None:
    """Remember where to read sizes that stand side by side, at the first value that has them."""
    for start in range(len(sizes or ())):
        for end in range(start + 1, len(sizes or ()) + 1):
            runs.setdefault((sizes or ())[start:end], (value, start))


def _read_shape(walk: Walk, node: Node, source: Value, start: int, count: int) -> None:
    """Let the node be a Shape of `source`, unless it is the same already."""
    attributes: dict[str, int] = {}
    if start:
        attributes["start"] = start
    rank = len(source.shape) if source.shape is not None else None
    if start + count != rank:
        attributes["end"] = start + count
    if node.key == "Shape" and node.inputs == [source] and _ends(node.attributes) == _ends(attributes):
        return
    node.op_type, node.domain, node.inputs, node.attributes = "Shape", "", [source], attributes
    walk.changed = True


def _ends(attributes: Mapping[str, Any]) -> tuple[int, int | None]:
    return attributes.get("start") or 0, attributes.get("end")
