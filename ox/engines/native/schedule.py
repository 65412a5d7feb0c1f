"""The order of the work: what each step reads and writes, when a value is read for the last time, and when the next
value of the state may be written over the old one."""

from __future__ import annotations

from dataclasses import dataclass

from ox.core.operator import OPS
from ox.engines.engine import Task
from ox.engines.native.calls import call_of
from ox.engines.native.fold import Folded
from ox.engines.native.steps import CopyStep, NodeStep, Step, WriteStep
from ox.graph.ir import Array, Node, Value

Update = tuple[Value, Value]  # a next value, and the state that it is written over


@dataclass
class Schedule:
    """Steps over slots. Slot 0 is what an optional input is that was left out; then come the inputs of the graph."""

    steps: list[Step]
    slots: list[Array | None]  # at the start of a call: the constants
    outputs: list[int]  # the slot of each output


def schedule(task: Task, folded: Folded) -> Schedule:
    """Steps for the nodes that are left, and for the updates."""
    return _Scheduler(task, folded).schedule()


class _Scheduler:
    def __init__(self, task: Task, folded: Folded) -> None:
        self.task, self.folded = task, folded
        self.inputs = set(task.graph.inputs)
        self.roots = _roots(folded.nodes)
        self.slot_of: dict[Value, int] = {v: i for i, v in enumerate(task.graph.inputs, 1)}
        self.slots: list[Array | None] = [None] * (1 + len(task.graph.inputs))
        self.nodes = folded.nodes
        self.made = {v: i for i, node in enumerate(self.nodes) for v in node.outputs}

    def root(self, value: Value) -> Value:
        """Whose memory a value has."""
        return self.roots.get(value, value)

    def slot(self, value: Value | None) -> int:
        if value is None:
            return 0
        if value not in self.slot_of:
            self.slot_of[value] = len(self.slots)
            self.slots.append(self.folded.constants.get(value))
        return self.slot_of[value]

    def schedule(self) -> Schedule:
        last = self.last_reads()
        kept = {self.root(v) for v in self.task.graph.outputs} | self.inputs | set(self.folded.constants)
        early, late = self.updates_by_time(last)
        steps: list[Step] = []
        for i, node in enumerate(self.nodes):
            steps.append(self.node_step(node, i, last, kept))
            steps += [WriteStep(self.slot(new), self.slot(state)) for new, state in early.get(i, [])]
        copies, outputs = self.outputs()
        return Schedule([*steps, *copies, *self.late_writes(late)], self.slots, outputs)

    def outputs(self) -> tuple[list[Step], list[int]]:
        """The slot of each output; copies of those that lie in memory of inputs, of constants or of other outputs."""
        steps: list[Step] = []
        slots: list[int] = []
        seen = {*self.inputs, *self.folded.constants, *map(self.root, self.task.updates)}
        for v in self.task.graph.outputs:
            if v in self.task.updates:
                slots.append(self.slot(self.task.updates[v]))
            elif self.root(v) in seen:
                slots.append(self.copied(v, steps))
            else:
                seen.add(self.root(v))
                slots.append(self.slot(v))
        return steps, slots

    def copied(self, value: Value, steps: list[Step]) -> int:
        """A slot with a copy of a value, made by a further step."""
        copy = len(self.slots)
        self.slots.append(None)
        steps.append(CopyStep(self.slot(value), copy))
        return copy

    def last_reads(self) -> dict[Value, int]:
        """By the value that owns the memory: the last node that reads it, or a view of it."""
        last: dict[Value, int] = {}
        for i, node in enumerate(self.nodes):
            for v in (*node.inputs, *node.outputs):
                if v is not None:
                    last[self.root(v)] = i
        return last

    def updates_by_time(self, last: dict[Value, int]) -> tuple[dict[int, list[Update]], list[Update]]:
        """The updates that are written behind a node: once the new value is made, and the old one and its views are
        read for the last time. And those behind all nodes: where an output or another update is a view of a state."""
        updates = self.task.updates
        viewed = {self.root(v) for v in self.task.graph.outputs if v not in updates}
        viewed |= {self.root(new) for new in updates if new in self.roots}
        early: dict[int, list[Update]] = {}
        late: list[Update] = []
        for new, state in updates.items():
            time = max(self.made.get(new, -1), last.get(state, -1))
            if time < 0 or state in viewed or self.root(new) in self.inputs:
                late.append((new, state))
            else:
                early.setdefault(time, []).append((new, state))
        return early, late

    def late_writes(self, updates: list[Update]) -> list[Step]:
        """Writes of updates behind all nodes; what is a view of another state is copied before any is written."""
        copies: list[Step] = []
        writes: list[Step] = []
        for new, state in updates:
            foreign = self.root(new) in self.inputs and self.root(new) is not state
            writes.append(WriteStep(self.copied(new, copies) if foreign else self.slot(new), self.slot(state)))
        return copies + writes

    def node_step(self, node: Node, i: int, last: dict[Value, int], kept: set[Value]) -> Step:
        reads = tuple(self.slot(v) for v in node.inputs)
        writes = tuple(self.slot(v) for v in node.outputs)
        touched = {v for v in (*node.inputs, *node.outputs) if v is not None}
        over = {v for v in touched if last[self.root(v)] == i and self.root(v) not in kept}
        return NodeStep(call_of(node), reads, writes, tuple(sorted(self.slot(v) for v in over)))


def _roots(nodes: list[Node]) -> dict[Value, Value]:
    """For each value that may be a view of another one: the value that has the memory."""
    roots: dict[Value, Value] = {}
    for node in nodes:
        op = OPS.get(node.key)
        if op is not None and op.view and node.inputs and node.inputs[0] is not None:
            source = node.inputs[0]
            roots |= {v: roots.get(source, source) for v in node.outputs}
    return roots
