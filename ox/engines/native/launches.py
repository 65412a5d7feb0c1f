"""Launches: which regions run together as one call of one kernel, and which write over the state they read."""

from __future__ import annotations

from dataclasses import dataclass, field

from ox.engines.native.aliases import Aliases
from ox.engines.native.fold import Folded
from ox.engines.native.kernel_source import BLOCK, Kernel, kernel_of
from ox.engines.native.order import Order
from ox.engines.native.regions import Part, Region, Single
from ox.graph.ir import Value

NAMED = 6  # operators in the name of a launch
TINY = 4096  # elements of a launch that is not worth a second thread


@dataclass(eq=False)
class Launch:
    """Regions of one kernel."""

    regions: list[Region]
    kernels: list[Kernel] = field(default_factory=list)  # of each region; their texts are equal

    @property
    def text(self) -> str:
        """The kernel's text; small work stays on one thread."""
        size = sum(region.size for region in self.regions)
        return self.kernels[0].text.replace("WIDTH", "BLOCK" if size > TINY else "1")

    @property
    def name(self) -> str:
        """``fused Mul Sub Sqrt``: the operators, for people."""
        kinds = list(dict.fromkeys(node.op_type for node in self.regions[0].nodes))
        return "fused " + " ".join(kinds[:NAMED]) + (" ..." if len(kinds) > NAMED else "")

    @property
    def reads(self) -> list[Value]:
        return [v for region in self.regions for v in region.inputs]

    @property
    def writes(self) -> list[Value]:
        return [v for region in self.regions for v in region.writes]


Work = Launch | Single


def launches(parts: list[Part], folded: Folded, updates: dict[Value, Value], aliases: Aliases) -> list[Work]:
    """The parts in an order in which they can run, where regions of equal kernels are one launch.

    Args:
        updates: next values of states.
    """
    made = {v: i for i, part in enumerate(parts) for v in part.writes}
    before = [{made[v] for v in part.reads if v in made} for part in parts]
    numbers = _sorted(before)
    parts = [parts[i] for i in numbers]
    place = {old: new for new, old in enumerate(numbers)}
    order = Order([{place[p] for p in before[old]} for old in numbers])
    _choose_in_place(parts, updates, aliases, order)
    groups: dict[str, list[int]] = {}
    merged: dict[int, list[Region]] = {}
    kernels: dict[Region, Kernel] = {}
    for i, part in enumerate(parts):
        if not isinstance(part, Region):
            continue
        kernel = kernels[part] = kernel_of(part, folded)
        for other in groups.setdefault(kernel.text, []):
            if not order.precedes(other, i) and not order.precedes(i, other):
                whole = order.merge(other, i)
                merged[whole].append(part)
                break
        else:
            groups[kernel.text].append(i)
            merged[i] = [part]
    work: list[Work] = []
    for i in order.sequence():
        part = parts[i]
        if isinstance(part, Region):
            work.append(Launch(merged[i], [kernels[region] for region in merged[i]]))
        else:
            work.append(part)
    return work


def _choose_in_place(parts: list[Part], updates: dict[Value, Value], aliases: Aliases, order: Order) -> None:
    """Let regions write next values over the old ones, where these are read for the last time, element by element."""
    readers: dict[Value, set[int]] = {}
    for i, part in enumerate(parts):
        for v in part.reads:
            readers.setdefault(aliases.root(v), set()).add(i)
    for i, part in enumerate(parts):
        if not isinstance(part, Region):
            continue
        for new in part.outputs:
            state = updates.get(new)
            if state is None or state in aliases.viewed or state.dtype != new.dtype or state.shape != part.shape:
                continue
            if any(v is not state and aliases.root(v) is state for v in part.inputs):
                continue
            others = [reader for reader in readers.get(state, ()) if order.find(reader) != order.find(i)]
            if any(order.precedes(i, reader) for reader in others):
                continue
            for reader in others:
                order.add(reader, i)
            part.in_place[new] = state


def _sorted(before: list[set[int]]) -> list[int]:
    """The numbers in an order in which each stands behind its predecessors, otherwise as they are."""
    done: set[int] = set()
    result: list[int] = []
    for start in range(len(before)):
        waiting = [start]
        while waiting:
            i = waiting[-1]
            missing = sorted((p for p in before[i] if p not in done), reverse=True)
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if i not in done:
                done.add(i)
                result.append(i)
    return result


def blocks_of(launch: Launch, elements: int = BLOCK) -> list[tuple[int, int]]:
    """The plan of a launch: for each block the number of its region, and its first element or row.

    Args:
        elements: of a block.
    """
    return [
        (number, first)
        for number, kernel in enumerate(launch.kernels)
        for first in range(0, kernel.count, max(1, elements // kernel.inner))
    ]
