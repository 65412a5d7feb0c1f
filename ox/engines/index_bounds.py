"""The range of integers that index something: checked around a run of a runtime that does not look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ox.core.kind import WHOLE
from ox.core.operator import OPS, kind_of
from ox.engines.class_check import reads_classes
from ox.engines.engine import Array
from ox.graph.ir import Graph, Node, Value
from ox.ops.index.in_range import out_of_range


@dataclass(frozen=True)
class Bound:
    """The range of a value of the graph, as arguments of `ox.ops.index.in_range.out_of_range`."""

    value: Value
    range: tuple[Any, ...]
    where: str

    def check(self, array: Array) -> None:
        """Raise BoundsError or ShapeError for a number outside."""
        error = out_of_range(array, *self.range)
        if error is not None:
            error.where = self.where
            raise error


def index_bounds(graph: Graph) -> list[Bound]:
    """The range of each input of the graph that an operator indexes with, also in another form. Of what the graph
    computes, those that it checks itself (InRange), and class labels: for others, -1 may be the last place."""
    origin: dict[Value, Value] = {v: v for v in graph.inputs if v.dtype is not None and v.dtype.kind in "iu"}
    found: dict[tuple[Any, ...], Bound] = {}
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        if source in origin and _passes_on(node):
            origin.update((v, origin[source]) for v in node.outputs)
        checked = _range(node, origin)
        if checked is not None and checked[0] not in graph.constants:
            index, limits = checked
            found.setdefault((index, *limits), Bound(index, limits, node.place))
    return list(found.values())


def _range(node: Node, origin: dict[Value, Value]) -> tuple[Value, tuple[Any, ...]] | None:
    """The value with which a node indexes, or whose range it checks, and the range."""
    if node.key == "ox.InRange":  # what it gives is not followed: it has been checked
        of, limits = node.inputs[0], node.attributes
        assert of is not None
        return origin.get(of, of), tuple(limits.get(name) for name in ("low", "high", "what", "classes", "ignored"))
    data, index = (*node.inputs, None, None)[:2]
    if index is None or data is None or data.shape is None:
        return None
    if reads_classes(node.key) and len(data.shape) == 2:
        what, ignored = "cross_entropy met a class out of range", node.attributes.get("ignore_index", -100)
        return origin.get(index, index), (0, data.shape[1] - 1, what, 1, ignored)
    if index in origin and _indexes_an_axis(node):
        size = data.shape[node.attributes.get("axis", 0)]
        return origin[index], (-size, size - 1, f"an index of input '{origin[index].name}' is out of range")
    return None


def _indexes_an_axis(node: Node) -> bool:
    op = OPS.get(node.key)
    return op is not None and "axis" in op.schema.attributes and op.schema.input_at(1).name == "indices"


def _passes_on(node: Node) -> bool:
    """Whether a node gives the values that it takes: all, so that one out of range is one that is used, or a slice, of
    which the rest is held to the range, too."""
    return kind_of(node.key) in WHOLE or node.key == "Slice" or _widens(node)


def _widens(node: Node) -> bool:
    """A Cast between integers of at least 32 bits."""
    made = node.outputs[0].dtype
    return node.key == "Cast" and made is not None and made.kind in "iu" and made.itemsize >= 4


def check_bounds(bounds: Sequence[tuple[int, Bound]], arrays: Sequence[Array]) -> None:
    """Raise BoundsError or ShapeError where an array, by its number, has an integer outside of its range."""
    for place, bound in bounds:
        bound.check(np.asarray(arrays[place]))
