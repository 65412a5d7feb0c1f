"""The range of integer inputs that index something: checked ahead for a runtime that does not look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ox.engines.engine import Array
from ox.errors import BoundsError
from ox.graph.ir import Graph, Node, Value

# what gives the values that it takes
PASSES_ON = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Expand", "Slice"))
INDEXED = frozenset(("Gather", "GatherElements", "ScatterElements"))


@dataclass(frozen=True)
class Bound:
    """An input of the graph indexes `size` elements, from 0 or from either end; `ignored` is a class that costs 0."""

    place: int
    name: str
    size: int
    signed: bool
    ignored: int | None
    where: str

    def check(self, array: Array) -> None:
        """Raise BoundsError for an index outside."""
        found = array if self.ignored is None else array[array != self.ignored]
        if not found.size:
            return
        low, high = int(found.min()), int(found.max())
        least = -self.size if self.signed else 0
        if low < least or high >= self.size:
            raise BoundsError(
                f"an index of input '{self.name}' is out of range",
                where=self.where,
                expected=f"{least} to {self.size - 1}",
                got=str(high if high >= self.size else low),
            )


def index_bounds(graph: Graph) -> list[Bound]:
    """A bound for each operator that indexes with an input of the graph, or with its values in another form."""
    origin: dict[Value, Value] = {v: v for v in graph.inputs if v.dtype is not None and v.dtype.kind in "iu"}
    places = {v: i for i, v in enumerate(graph.inputs)}
    found: dict[tuple[int, int, bool, int | None], Bound] = {}
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        if source in origin and (node.key in PASSES_ON or _widens(node)):
            origin.update((v, origin[source]) for v in node.outputs)
        if len(node.inputs) < 2 or node.inputs[1] not in origin:
            continue
        data, index = node.inputs[0], origin[node.inputs[1]]
        size = _size(node, data)
        if size is not None:
            ignored, signed = node.attributes.get("ignore_index"), node.key in INDEXED
            key = (places[index], size, signed, ignored)
            found.setdefault(key, Bound(places[index], index.name, size, signed, ignored, node.place))
    return list(found.values())


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
