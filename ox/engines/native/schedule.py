"""The order of the work: what each step reads and writes, when a value is read for the last time, and when the next
value of the state may be written over the old one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import prod

import numpy as np

from ox.engines.engine import Task
from ox.engines.native.aliases import Aliases
from ox.engines.native.calls import Array, call_of
from ox.engines.native.fixed import FixedMemory
from ox.engines.native.fold import Folded
from ox.engines.native.launches import Launch, Work, blocks_of
from ox.engines.native.memory import SharedBlock
from ox.engines.native.steps import (
    Binding,
    CopiedStep,
    CopyStep,
    LaunchBinding,
    LaunchStep,
    NodeStep,
    RecordedBinding,
    RecordedStep,
    Shown,
    Step,
    ViewBinding,
    WriteStep,
    shown_call,
)
from ox.engines.watched import EngineKernel, common_origin
from ox.graph.ir import Node, Value
from ox.kernels import Library, address, generated

Update = tuple[Value, Value]  # a next value, and the state that it is written over
LoadedKernel = tuple[generated.Launch, generated.Launch | None]  # and what adds up its sums


@dataclass
class Schedule:
    """Steps over slots. Slot 0 is what an optional input is that was left out; then come the inputs of the graph."""

    steps: list[Step]
    bindings: list[Binding]  # what is done before, when the inputs lie elsewhere than in the last call
    slots: list[Array | None]  # at the start of a call: the constants, and what has its place in the planned memory
    outputs: list[int]  # the slot of each output
    planned: int  # bytes of the planned memory
    unplanned: int  # what they would be if no two values shared a place


def schedule(
    task: Task,
    folded: Folded,
    aliases: Aliases,
    work: list[Work],
    kernels: dict[str, LoadedKernel],
    library: Library | None,
    memory: SharedBlock,
) -> Schedule:
    """Steps for the work, and for the updates.

    Args:
        kernels: the generated ones, by text.
        library: the compiled kernels, where there are any.
        memory: for what lives inside of a call.
    """
    fixed = FixedMemory(task, folded, aliases, work, library, memory)
    return _Scheduler(task, folded, aliases, work, kernels, fixed).schedule()


@dataclass
class _Scheduler:
    task: Task
    folded: Folded
    aliases: Aliases
    work: list[Work]
    kernels: dict[str, LoadedKernel]
    fixed: FixedMemory
    steps: list[Step] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = self.aliases.root
        self.inputs = set(self.task.graph.inputs)
        self.slot_of: dict[Value, int] = {v: i for i, v in enumerate(self.task.graph.inputs, 1)}
        self.slots: list[Array | None] = [None] * (1 + len(self.inputs))
        self.made = {v: i for i, part in enumerate(self.work) for v in part.writes}
        regions = [region for part in self.work if isinstance(part, Launch) for region in part.regions]
        self.in_place = {new: state for region in regions for new, state in region.in_place.items()}
        self.kept = {self.root(v) for v in self.task.graph.outputs} | self.inputs | set(self.folded.constants)
        self.last = self.last_reads()

    def slot(self, value: Value | None) -> int:
        if value is None:
            return 0
        value = self.in_place.get(value, value)
        if value not in self.slot_of:
            self.slot_of[value] = len(self.slots)
            self.slots.append(self.fixed.arrays[value] if self.fixed.is_fixed(value) else None)
        return self.slot_of[value]

    def schedule(self) -> Schedule:
        early, late = self.updates_by_time()
        for i, part in enumerate(self.work):
            if isinstance(part, Launch):
                self.add_launch(part, i)
            else:
                self.add_node(part.node, i)
            self.steps += [WriteStep(self.slot(new), self.slot(state)) for new, state in early.get(i, [])]
        copies, outputs = self.outputs()
        self.steps += [*copies, *self.late_writes(late)]
        fixed = self.fixed
        return Schedule(self.steps, self.bindings, self.slots, outputs, fixed.planned, fixed.unplanned)

    def outputs(self) -> tuple[list[Step], list[int]]:
        """The slot of each output; copies of those that lie in the planned memory, or in that of inputs, constants or
        other outputs."""
        steps: list[Step] = []
        slots: list[int] = []
        seen = {*self.inputs, *self.folded.constants, *map(self.root, self.task.updates)}
        for v in self.task.graph.outputs:
            if v in self.task.updates:
                slots.append(self.slot(self.task.updates[v]))
            elif self.root(v) in seen or self.fixed.is_fixed(v):
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
        """By the value that owns the memory: the last part of the work that reads it, or a view of it."""
        last: dict[Value, int] = {}
        for i, part in enumerate(self.work):
            for v in (*part.reads, *part.writes):
                last[self.root(v)] = i
        return last

    def updates_by_time(self) -> tuple[dict[int, list[Update]], list[Update]]:
        """The updates that are written behind a part of the work: once the new value is made, and the old one and its
        views are read for the last time. And those behind all work: where an output or another update is a view of a
        state."""
        early: dict[int, list[Update]] = {}
        late: list[Update] = []
        for new, state in self.task.updates.items():
            if new in self.in_place or self.is_unchanged(new, state):
                continue
            time = max(self.made.get(new, -1), self.last.get(state, -1))
            if time < 0 or state in self.aliases.viewed or self.root(new) in self.inputs:
                late.append((new, state))
            else:
                early.setdefault(time, []).append((new, state))
        return early, late

    def is_unchanged(self, new: Value, state: Value) -> bool:
        """Whether a next value is the old one, as it lies."""
        if self.root(new) is not state or new not in self.fixed.arrays:
            return False
        one, other = self.fixed.arrays[new], self.fixed.arrays[state]
        return address(one) == address(other) and one.strides == other.strides

    def late_writes(self, updates: list[Update]) -> list[Step]:
        """Writes of updates behind all work; what is a view of another state is copied before any is written."""
        copies: list[Step] = []
        writes: list[Step] = []
        for new, state in updates:
            foreign = self.root(new) in self.inputs and self.root(new) is not state
            writes.append(WriteStep(self.copied(new, copies) if foreign else self.slot(new), self.slot(state)))
        return copies + writes

    def over(self, part: Work, i: int) -> tuple[int, ...]:
        """The slots of what is read for the last time here, and not fixed."""
        values = {v for v in (*part.reads, *part.writes) if self.last[self.root(v)] == i}
        loose = {v for v in values if self.root(v) not in self.kept and v not in self.fixed.arrays}
        return tuple(sorted(self.slot(v) for v in loose))

    def add_node(self, node: Node, i: int) -> None:
        reads = tuple(self.slot(v) for v in node.inputs)
        writes = tuple(self.slot(v) for v in node.outputs)
        fixed = self.fixed
        is_bound = any(v in fixed.bound for v in node.inputs if v is not None)
        if node in fixed.views:
            if is_bound:
                self.bindings.append(ViewBinding(fixed.views[node], reads, writes))
        elif node in fixed.recorded:
            arrays = fixed.inputs_of(node)
            call = fixed.recorded[node]
            step = RecordedStep(call, fixed.record(node, arrays), arrays, shown_call(call, reads, writes, planned=True))
            self.steps.append(step)
            if is_bound:
                self.bindings.append(RecordedBinding(step, partial(fixed.record, node), reads))
        elif node in fixed.copied:
            self.steps.append(CopiedStep(fixed.copied[node], reads, writes))
        else:
            self.steps.append(NodeStep(call_of(node), reads, writes, self.over(self.work[i], i)))

    def shown(self, launch: Launch, planned: bool) -> Shown:
        reads, writes = (tuple(self.slot(v) for v in values) for values in (launch.reads, launch.writes))
        nodes = [node for region in launch.regions for node in region.nodes]
        return Shown(EngineKernel(launch.name), common_origin(nodes, planned), reads, writes)

    def add_launch(self, launch: Launch, i: int) -> None:
        table: list[int] = []
        plan = blocks_of(launch)
        partials = np.empty(len(plan) if launch.kernels[0].finish else 0)
        checked: list[tuple[int, int, int]] = []
        bound: list[tuple[int, int, int]] = []
        fresh = []
        for number, (region, kernel) in enumerate(zip(launch.regions, launch.kernels, strict=True)):
            for v in kernel.line:
                slot, size, dtype = self.slot(v), self.folded.sizes[v], np.dtype(v.dtype)
                known = self.fixed.arrays.get(v)
                if known is not None and known.flags.c_contiguous and v not in self.fixed.bound:
                    table.append(address(known))
                    continue
                if v in region.writes and v not in region.in_place:
                    fresh.append((len(table), slot, size, dtype))
                else:
                    place = (len(table), slot, prod(size) * dtype.itemsize)
                    (checked if known is None or not known.flags.c_contiguous else bound).append(place)
                table.append(0)
            table.append(kernel.count)
            if kernel.finish:
                own = [k for k, (line, _) in enumerate(plan) if line == number]
                table += [address(partials), own[0], len(own)]
        run, finish = self.kernels[launch.text]
        over = self.over(launch, i)
        step = LaunchStep(
            run, finish, table, plan, len(launch.regions), checked, fresh, partials, over, self.shown(launch, not fresh)
        )
        self.steps.append(step)
        if bound:
            self.bindings.append(LaunchBinding(step, bound))
