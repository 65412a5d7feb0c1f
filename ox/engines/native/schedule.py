"""The order of the work: what each step reads and writes, when a value is read for the last time, and when the next
value of the state may be written over the old one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ox.engines.engine import Task
from ox.engines.native.aliases import Aliases
from ox.engines.native.calls import call_of
from ox.engines.native.fold import Folded
from ox.engines.native.launches import Launch, Work, blocks_of
from ox.engines.native.memory import Life, aligned_block, place
from ox.engines.native.steps import CopyStep, LaunchStep, NodeStep, Step, WriteStep
from ox.graph.ir import Array, Node, Value
from ox.kernels import address, generated

Update = tuple[Value, Value]  # a next value, and the state that it is written over
LoadedKernel = tuple[generated.Launch, generated.Launch | None]  # and what adds up its sums


@dataclass
class Schedule:
    """Steps over slots. Slot 0 is what an optional input is that was left out; then come the inputs of the graph."""

    steps: list[Step]
    slots: list[Array | None]  # at the start of a call: the constants, and what has its place in the planned memory
    outputs: list[int]  # the slot of each output
    planned: int  # bytes of the planned memory
    unplanned: int  # what they would be if no two values shared a place


def schedule(
    task: Task, folded: Folded, aliases: Aliases, work: list[Work], kernels: dict[str, LoadedKernel]
) -> Schedule:
    """Steps for the work, and for the updates.

    Args:
        kernels: the generated ones, by text.
    """
    return _Scheduler(task, folded, aliases, work, kernels).schedule()


class _Scheduler:
    def __init__(
        self, task: Task, folded: Folded, aliases: Aliases, work: list[Work], kernels: dict[str, LoadedKernel]
    ) -> None:
        self.task, self.folded, self.aliases, self.work, self.kernels = task, folded, aliases, work, kernels
        self.root = aliases.root
        self.inputs = set(task.graph.inputs)
        self.slot_of: dict[Value, int] = {v: i for i, v in enumerate(task.graph.inputs, 1)}
        self.slots: list[Array | None] = [None] * (1 + len(task.graph.inputs))
        self.made = {v: i for i, part in enumerate(work) for v in part.writes}
        self.in_place = {
            new: state
            for part in work
            if isinstance(part, Launch)
            for r in part.regions
            for new, state in r.in_place.items()
        }
        self.kept = {self.root(v) for v in task.graph.outputs} | self.inputs | set(folded.constants)
        self.last = self.last_reads()

    def slot(self, value: Value | None) -> int:
        if value is None:
            return 0
        value = self.in_place.get(value, value)
        if value not in self.slot_of:
            self.slot_of[value] = len(self.slots)
            constant = self.folded.constants.get(value)
            self.slots.append(None if constant is None else np.asarray(constant, order="C"))
        return self.slot_of[value]

    def schedule(self) -> Schedule:
        planned, unplanned = self.plan_memory()
        early, late = self.updates_by_time()
        steps: list[Step] = []
        for i, part in enumerate(self.work):
            steps.append(self.launch_step(part, i) if isinstance(part, Launch) else self.node_step(part.node, i))
            steps += [WriteStep(self.slot(new), self.slot(state)) for new, state in early.get(i, [])]
        copies, outputs = self.outputs()
        return Schedule([*steps, *copies, *self.late_writes(late)], self.slots, outputs, planned, unplanned)

    def plan_memory(self) -> tuple[int, int]:
        """Give the results of launches that do not leave the call their places. The bytes planned, and of all."""
        values = [
            v
            for part in self.work
            if isinstance(part, Launch)
            for v in part.writes
            if v not in self.in_place and v not in self.kept and v.dtype is not None
        ]
        lives = [
            Life(prod(self.folded.sizes[v]) * np.dtype(v.dtype).itemsize, self.made[v], self.last[v]) for v in values
        ]
        offsets, total = place(lives)
        memory = aligned_block(total)
        for v, life, offset in zip(values, lives, offsets, strict=True):
            array = memory[offset : offset + life.size].view(np.dtype(v.dtype)).reshape(self.folded.sizes[v])
            self.slots[self.slot(v)] = array
        return total, sum(life.size for life in lives)

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
            if new in self.in_place:
                continue
            time = max(self.made.get(new, -1), self.last.get(state, -1))
            if time < 0 or state in self.aliases.viewed or self.root(new) in self.inputs:
                late.append((new, state))
            else:
                early.setdefault(time, []).append((new, state))
        return early, late

    def late_writes(self, updates: list[Update]) -> list[Step]:
        """Writes of updates behind all work; what is a view of another state is copied before any is written."""
        copies: list[Step] = []
        writes: list[Step] = []
        for new, state in updates:
            foreign = self.root(new) in self.inputs and self.root(new) is not state
            writes.append(WriteStep(self.copied(new, copies) if foreign else self.slot(new), self.slot(state)))
        return copies + writes

    def over(self, part: Work, i: int) -> tuple[int, ...]:
        """The slots of what is read for the last time here, and not planned."""
        values = {
            v for v in (*part.reads, *part.writes) if self.last[self.root(v)] == i and self.root(v) not in self.kept
        }
        return tuple(sorted(self.slot(v) for v in values if self.slots[self.slot(v)] is None))

    def node_step(self, node: Node, i: int) -> Step:
        reads = tuple(self.slot(v) for v in node.inputs)
        writes = tuple(self.slot(v) for v in node.outputs)
        return NodeStep(call_of(node), reads, writes, self.over(self.work[i], i))

    def launch_step(self, launch: Launch, i: int) -> Step:
        table: list[int] = []
        plan = blocks_of(launch)
        partials = np.empty(len(plan) if launch.kernels[0].finish else 0)
        checked: list[tuple[int, int, int]] = []
        fresh = []
        for number, (region, kernel) in enumerate(zip(launch.regions, launch.kernels, strict=True)):
            for v in kernel.line:
                slot, size, dtype = self.slot(v), self.folded.sizes[v], np.dtype(v.dtype)
                known = self.slots[slot]
                if known is not None:
                    table.append(address(known))
                    continue
                if v in region.writes and v not in region.in_place:
                    fresh.append((len(table), slot, size, dtype))
                else:
                    checked.append((len(table), slot, prod(size) * dtype.itemsize))
                table.append(0)
            table.append(kernel.count)
            if kernel.finish:
                own = [k for k, (line, _) in enumerate(plan) if line == number]
                table += [address(partials), own[0], len(own)]
        run, finish = self.kernels[launch.text]
        return LaunchStep(run, finish, table, plan, len(launch.regions), checked, fresh, partials, self.over(launch, i))
