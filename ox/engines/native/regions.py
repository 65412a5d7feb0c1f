"""Regions: pointwise nodes of one iteration space that run as one generated kernel, perhaps with a sum at their end, or
with sums and maxima of rows between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from ox.dtypes import float32
from ox.engines.native.body import Body, Instruction
from ox.engines.native.fold import Folded
from ox.engines.native.order import Order
from ox.engines.native.symbolic import Argument, Shape, Traced, trace
from ox.graph.ir import Graph, Node, Value

MOST_INSTRUCTIONS = 400  # of one kernel, for compilers take more than twice as long for twice as much
MOST_ARRAYS = 40
ROW_INSTRUCTIONS = {"ReduceSum": "row_sum", "ReduceMean": "row_mean", "ReduceMax": "row_max"}
ROW_WEIGHT = 20  # in instructions: each loop over a row computes again what it needs
SHORTEST_ROW, LONGEST_ROW = 8, 16384  # others are better done by themselves


@dataclass(frozen=True)
class Total:
    """The sum or mean of a region's elements."""

    value: Value
    place: int  # in the body
    is_mean: bool


@dataclass(eq=False)
class Region:
    """Nodes whose results have one shape, and the work on one element."""

    shape: Shape
    nodes: list[Node]
    body: Body = field(default_factory=Body)
    inputs: list[Value] = field(default_factory=list)  # in the order of the body's inputs
    outputs: dict[Value, int] = field(default_factory=dict)  # what others read, and its place in the body
    total: Total | None = None
    in_place: dict[Value, Value] = field(default_factory=dict)  # outputs that are written over a state

    @property
    def reads(self) -> list[Value]:
        return self.inputs

    @property
    def writes(self) -> list[Value]:
        return [*self.outputs, *([] if self.total is None else [self.total.value])]

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


class _Groups:
    """Nodes, merged into groups that can be regions."""

    def __init__(self, nodes: list[Node], folded: Folded) -> None:
        made = {v: i for i, node in enumerate(nodes) for v in node.outputs}
        self.nodes = nodes
        self.before = [{made[v] for v in node.inputs if v in made} for node in nodes]
        self.order = Order(self.before)
        self.traced = [trace_node(node, folded) for node in nodes]
        self.shapes = [None if t is None else t.shapes[0] for t in self.traced]
        self.weights = [0 if t is None else len(t.body.instructions) for t in self.traced]
        self.arrays = [len(node.inputs) + len(node.outputs) for node in nodes]
        self.totals: set[int] = set()
        self.row_reductions: set[int] = set()
        for i, node in enumerate(nodes):
            source = made.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
            if source is not None and self.shapes[source] is not None and _is_total(node, folded):
                self.shapes[i] = self.shapes[source]
                self.before[i] = {source}
                self.totals.add(i)
            elif (traced := _row_reduction(node, folded)) is not None:
                assert node.inputs[0] is not None
                self.traced[i], self.shapes[i] = traced, folded.sizes[node.inputs[0]]
                self.weights[i] = ROW_WEIGHT
                self.row_reductions.add(i)
        self.with_rows = set(self.row_reductions)  # numbers that stand for groups with reductions of rows
        # by the number that stands for a group with a total: the nodes that need it, which another loop must run
        self.behind_total = {i: self.order.following(i) for i in self.totals}

    def merge_all(self) -> None:
        """Each node joins the groups of what it reads."""
        for i in range(len(self.nodes)):
            if self.shapes[i] is None:
                continue
            before = sorted(self.before[i] - self.totals, reverse=True)
            self._join_rows(i, before)
            for p in before:
                if self.shapes[p] == self.shapes[i]:
                    self._merge(self.order.find(p), self.order.find(i))

    def _join_rows(self, i: int, before: list[int]) -> None:
        """Let a node with one element a row, such as the root of a mean, join the group that reduces the rows."""
        for p in before:
            space = self.shapes[p]
            if (
                space is not None
                and space != self.shapes[i] == (*space[:-1], 1)
                and self.order.find(p) in self.with_rows
                and self._merge(self.order.find(p), self.order.find(i))
            ):
                self.shapes[i] = space
                return

    def _merge(self, a: int, b: int) -> bool:
        """Whether the groups became one."""
        weight, count = self.weights[a] + self.weights[b], self.arrays[a] + self.arrays[b] - 2
        if a == b or weight > MOST_INSTRUCTIONS or count > MOST_ARRAYS or not self.order.can_merge(a, b):
            return False
        behind = [self.behind_total[g] for g in (a, b) if g in self.behind_total]
        if len(behind) > 1 or any(self.order.contains(g, bits) for bits in behind for g in (a, b)):
            return False
        rows = not self.with_rows.isdisjoint((a, b))
        if behind and rows:
            return False
        whole = self.order.merge(a, b)
        self.weights[whole], self.arrays[whole] = weight, count
        if behind:
            self.behind_total[whole] = behind[0]
        if rows:
            self.with_rows.add(whole)
        return True

    def members(self) -> dict[int, list[int]]:
        """The nodes of each group, in order."""
        found: dict[int, list[int]] = {}
        for i in range(len(self.nodes)):
            found.setdefault(self.order.find(i), []).append(i)
        return found


def fuse(graph: Graph, folded: Folded) -> list[Part]:
    """The nodes as regions and single ones, in the order of their first nodes."""
    nodes = folded.nodes
    groups = _Groups(nodes, folded)
    groups.merge_all()
    numbers_of = [groups.order.find(i) for i in range(len(nodes))]
    made_by = {v: numbers_of[i] for i, node in enumerate(nodes) for v in node.outputs}
    seen = set(graph.outputs)  # values that other groups read, or the caller
    for i, node in enumerate(nodes):
        seen.update(v for v in node.inputs if v in made_by and made_by[v] != numbers_of[i])
    parts: list[Part] = []
    for numbers in groups.members().values():
        shape = groups.shapes[numbers[0]]
        if shape is None or groups.traced[numbers[0]] is None or groups.row_reductions.issuperset(numbers):
            parts += [Single(nodes[i]) for i in numbers]
            continue
        region = Region(shape, [nodes[i] for i in numbers])
        _fill(region, [groups.traced[i] for i in numbers], folded, seen)
        parts.append(region)
    return parts


def _is_total(node: Node, folded: Folded) -> bool:
    """Whether a node is a sum or mean of all elements of a float32 value."""
    if node.key not in ("ReduceSum", "ReduceMean"):
        return False
    source, result = node.inputs[0], node.outputs[0]
    if source not in folded.sizes or result not in folded.sizes or source is None:
        return False
    return source.dtype == result.dtype == float32 and prod(folded.sizes[result]) == 1 != prod(folded.sizes[source])


def _row_reduction(node: Node, folded: Folded) -> Traced | None:
    """The work of a sum, mean or maximum along the last axis, which stays with length 1, of a float32 value."""
    name, source, result = ROW_INSTRUCTIONS.get(node.key), node.inputs[0] if node.inputs else None, node.outputs[0]
    if name is None or source is None or source not in folded.sizes or result not in folded.sizes:
        return None
    shape = folded.sizes[source]
    if not source.dtype == result.dtype == float32 or not shape or folded.sizes[result] != (*shape[:-1], 1):
        return None
    if not SHORTEST_ROW <= shape[-1] <= LONGEST_ROW or prod(shape) == shape[-1] or 0 in shape:
        return None
    body = Body()
    place = body.add(Instruction(name, float32, (body.add(Instruction("input", float32, payload=0)),)))
    return Traced(body, (place,), (folded.sizes[result],), (float32,))


def _fill(region: Region, traced: list[Traced | None], folded: Folded, seen: set[Value]) -> None:
    """Write the body of a region from those of its nodes. `seen` are values that others read."""
    places: dict[Value, int] = {}
    for node, own in zip(region.nodes, traced, strict=True):
        if own is None:
            assert node.inputs[0] is not None
            region.total = Total(node.outputs[0], places[node.inputs[0]], node.op_type == "ReduceMean")
            continue
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
