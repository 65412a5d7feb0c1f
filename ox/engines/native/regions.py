"""Regions: pointwise nodes of one iteration space that run as one generated kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from ox.engines.native.body import Body
from ox.engines.native.fold import Folded
from ox.engines.native.order import Order
from ox.engines.native.symbolic import Argument, Shape, Traced, trace
from ox.graph.ir import Graph, Node, Value

MOST_INSTRUCTIONS = 400  # of one kernel, for compilers take more than twice as long for twice as much
MOST_ARRAYS = 40


@dataclass(eq=False)
class Region:
    """Nodes whose results have one shape, and the work on one element."""

    shape: Shape
    nodes: list[Node]
    body: Body = field(default_factory=Body)
    inputs: list[Value] = field(default_factory=list)  # in the order of the body's inputs
    outputs: dict[Value, int] = field(default_factory=dict)  # what others read, and its place in the body
    in_place: dict[Value, Value] = field(default_factory=dict)  # outputs that are written over a state

    @property
    def reads(self) -> list[Value]:
        return self.inputs

    @property
    def writes(self) -> list[Value]:
        return list(self.outputs)

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(eq=False)
class Single:
    """A node that runs by itself."""

    node: Node

    @property
    def reads(self) -> list[Value]:
        return [v for v in self.node.inputs if v is not None]

    @property
    def writes(self) -> list[Value]:
        return self.node.outputs


Part = Region | Single


def fuse(graph: Graph, folded: Folded) -> list[Part]:
    """The nodes as regions and single ones, in the order of their first nodes."""
    nodes = folded.nodes
    made = {v: i for i, node in enumerate(nodes) for v in node.outputs}
    before = [{made[v] for v in node.inputs if v in made} for node in nodes]
    order = Order(before)
    traced = [trace_node(node, folded) for node in nodes]
    weights = [0 if t is None else len(t.body.instructions) for t in traced]
    arrays = [len(node.inputs) + len(node.outputs) for node in nodes]
    for i, own in enumerate(traced):
        if own is None:
            continue
        for p in sorted(before[i], reverse=True):
            other, a, b = traced[p], order.find(p), order.find(i)
            if other is None or other.shapes[0] != own.shapes[0] or a == b or not order.can_merge(a, b):
                continue
            if weights[a] + weights[b] > MOST_INSTRUCTIONS or arrays[a] + arrays[b] - 2 > MOST_ARRAYS:
                continue
            weight, count = weights[a] + weights[b], arrays[a] + arrays[b] - 2
            whole = order.merge(a, b)
            weights[whole], arrays[whole] = weight, count
    members: dict[int, list[int]] = {}
    for i in range(len(nodes)):
        members.setdefault(order.find(i), []).append(i)
    read_by: dict[Value, set[int]] = {}
    for i, node in enumerate(nodes):
        for v in node.inputs:
            if v is not None:
                read_by.setdefault(v, set()).add(order.find(i))
    outputs = set(graph.outputs)
    parts: list[Part] = []
    for group, numbers in members.items():
        first = traced[numbers[0]]
        if first is None:
            parts.append(Single(nodes[numbers[0]]))
            continue
        region = Region(first.shapes[0], [nodes[i] for i in numbers])
        seen = {v for v, readers in read_by.items() if readers - {group}} | outputs
        _fill(region, [traced[i] for i in numbers], folded, seen)
        parts.append(region)
    return parts


def _fill(region: Region, traced: list[Traced | None], folded: Folded, seen: set[Value]) -> None:
    """Write the body of a region from those of its nodes. `seen` are values that others read."""
    places: dict[Value, int] = {}
    for node, own in zip(region.nodes, traced, strict=True):
        assert own is not None
        given: list[int] = []
        used = {each.payload: each for each in own.body.instructions if each.name == "input"}
        for position, value in enumerate(node.inputs):
            if position not in used or value is None:
                given.append(-1)
                continue
            if value not in places:
                places[value] = region.body.add(used[position]._replace(payload=len(region.inputs)))
                region.inputs.append(value)
            given.append(places[value])
        inside = region.body.include(own.body, given)
        for value, place in zip(node.outputs, own.results, strict=True):
            places[value] = inside[place]
            if value in seen:
                region.outputs[value] = inside[place]


def trace_node(node: Node, folded: Folded) -> Traced | None:
    """The work of a node on one element, where sizes are fixed, some work is done, and results have one shape."""
    arguments: list[Argument | None] = []
    for value in node.inputs:
        if value is None:
            arguments.append(None)
            continue
        if value not in folded.sizes or value.dtype is None:
            return None
        constant = folded.constants.get(value)
        single = constant if constant is not None and constant.size == 1 else None
        arguments.append(Argument(value.dtype, folded.sizes[value], single))
    if any(v not in folded.sizes or v.dtype is None for v in node.outputs):
        return None
    traced = trace(node, arguments)
    if traced is None:
        return None
    fits = all(
        shape == traced.shapes[0] == folded.sizes[v] and dtype == v.dtype
        for v, shape, dtype in zip(node.outputs, traced.shapes, traced.dtypes, strict=True)
    )
    works = all(traced.body.instructions[place].name not in ("input", "constant") for place in traced.results)
    return traced if fits and works and 0 not in traced.shapes[0] else None
