"""The range of integer inputs that index something: checked ahead for a runtime that does not look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ox.engines.engine import Array
from ox.graph.ir import Graph, Node, Value
from ox.ops.index.in_range import out_of_range

# what gives the values that it takes
PASSES_ON = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Expand", "Slice"))
INDEXED = frozenset(("Gather", "GatherElements", "ScatterElements"))


@dataclass(frozen=True)
class Bound:
    """The range of an input of the graph, as arguments of `ox.ops.index.in_range.out_of_range`."""

    place: int
    range: tuple[Any, ...]
    where: str

    def check(self, array: Array) -> None:
        """Raise BoundsError or ShapeError for a number outside."""
        error = out_of_range(array, *self.range)
        if error is not None:
            error.where = self.where
            raise error


def index_bounds(graph: Graph) -> list[Bound]:
    """A bound for each operator that indexes with an input of the graph, or with its values in another form, or that
    checks the range of these."""
    origin: dict[Value, Value] = {v: v for v in graph.inputs if v.dtype is not None and v.dtype.kind in "iu"}
    places = {v: i for i, v in enumerate(graph.inputs)}
    found: dict[tuple[Any, ...], Bound] = {}
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        if source in origin and (node.key in PASSES_ON or _widens(node)):
            origin.update((v, origin[source]) for v in node.outputs)
        checked = _range(node, origin)
        if checked is not None:
            index, limits = checked
            found.setdefault((index, *limits), Bound(places[index], limits, node.place))
    return list(found.values())


def _range(node: Node, origin: dict[Value, Value]) -> tuple[Value, tuple[Any, ...]] | None:
    """The input of the graph with which a node indexes, or whose range it checks, and the range."""
    if node.key == "ox.InRange":  # what it gives is not followed: it has been checked
        of, limits = node.inputs[0], node.attributes
        range_ = tuple(limits.get(name) for name in ("low", "high", "what", "classes", "ignored"))
        return (origin[of], range_) if of in origin else None
    if len(node.inputs) < 2 or node.inputs[1] not in origin:
        return None
    index, size = origin[node.inputs[1]], _size(node, node.inputs[0])
    if size is None:
        return None
    least = -size if node.key in INDEXED else 0
    what = f"an index of input '{index.name}' is out of range"
    return index, (least, size - 1, what, 0, node.attributes.get("ignore_index"))


def _widens(node: Node) -> bool:
    """A Cast between integers of at least 32 bits."""
    made = node.outputs[0].dtype
    return node.key == "Cast" and made is not None and made.kind in "iu" and made.itemsize >= 4


def _size(node: Node, data: Value | None) -> int | None:
    """How many elements the second input indexes; None where it indexes nothing."""
    if data is None or data.shape is None:
        return None
    if node.key in INDEXED:
        axis: int = node.attributes.get("axis", 0)
        return data.shape[axis]
    return data.shape[1] if node.domain == "ox" and node.op_type.endswith("CrossEntropy") and data.shape[1:] else None


def check_bounds(bounds: Sequence[Bound], arrays: Sequence[Array]) -> None:
    """Raise BoundsError where an input indexes what is not there."""
    for bound in bounds:
        bound.check(np.asarray(arrays[bound.place]))
