"""Recordings at further sizes, for branches on a size that no comparison tells: of ``int(n)``, ``str(n)``, ``[0] * n``.

Python's own functions read an int without a call of its methods, so a recording does not hear that a size became a
plain number. At each size that is probed, one more recording must be the same graph. A size that was heard to become a
number, or that changes the graph, is probed one by one, and the file is for the probed sizes alone; of a batch only
where its size changes the graph, for many models make a number of it without a branch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise, product

from ox.core.size_expression import leaves
from ox.export.declared_dims import Sizes
from ox.export.example_inputs import Example
from ox.graph.record.recorded import SizeTest
from ox.graph.size_rules import SizeRange, SizeRules, range_around

MAX_NODES = 1_000  # in the recordings of one size together, besides those at powers of two
MAX_NODES_READ = 3_000  # the same, of a size that became a plain number
MAX_ELEMENTS = 1 << 16  # in the inputs of one recording, or four times as many as the example has
READ_UP_TO = 256  # the largest size that is probed of those that became plain numbers, unless one was declared


class Outcome(Enum):
    """What came of one more recording."""

    SAME = "the graph is right"
    OTHER = "the graph is another"
    FAILS = "the model does not run, and the graph would"


Recorder = Callable[[Sizes], Outcome]


def probe(
    record: Recorder, example: Example, sizes: Sizes, rules: SizeRules, read: Iterable[SizeTest], nodes: int
) -> SizeRules:
    """The rules, with ranges of the sizes at which the recordings are one graph.

    Args:
        record: one more recording, at these sizes.
        sizes: those of the first recording.
        read: what tells of a size that became a plain number.
        nodes: how many the first recording has.
    """
    numbers = _named_in(read, sizes)
    before = {dim: rules.ranges.get(dim, example.declared.get(dim, SizeRange())) for dim in sizes}
    ranges, read_ranges = {}, {}
    for dim, own in sizes.items():
        if dim == example.batch and dim not in numbers:
            continue
        probes = _Probes(dim, sizes, record, rules)
        for is_read in (False, True):
            if is_read and dim not in numbers and Outcome.OTHER not in probes.outcomes.values():
                break
            last = _last(example, dim, own, before[dim], is_read)
            budget = (MAX_NODES_READ if is_read else MAX_NODES) // max(nodes, 1)
            probes.at(_chosen(own, last, budget, before[dim]))
            other = Outcome.OTHER in probes.outcomes.values()
            ranges[dim] = probes.range(before[dim], limited=is_read and (other or dim != example.batch))
        if dim in numbers:
            read_ranges[dim] = probes.range(before[dim], limited=True)
    right = _right_at_corners(record, sizes, rules, read_ranges, example.batch)
    ranges |= {} if right == read_ranges else right
    changed = {dim: each for dim, each in ranges.items() if each != before[dim]}
    return replace(rules, ranges={**rules.ranges, **changed})


def multiples_that_run(runs: Callable[[Sizes], bool | None], example: Example, sizes: Sizes) -> dict[str, int]:
    """The smallest steps by which sizes may grow where the model does not run at each; empty where there are none.

    Args:
        runs: whether the model runs at these sizes, and the first recording is right there.
        sizes: those of the first recording, which are multiples themselves.
    """
    steps: dict[str, int] = {}
    for dim, own in sizes.items():
        if dim == example.batch or dim in example.declared:
            continue
        divisors = (k for k in range(1, own + 1) if own % k == 0)
        step = next((k for k in divisors if runs({**sizes, dim: own + k})), None)
        if step is None:
            return {}
        steps[dim] = step
    needed = {dim: step for dim, step in steps.items() if step > 1}
    grown = {**sizes, **{dim: sizes[dim] + step for dim, step in steps.items()}}
    return needed if needed and runs(grown) else {}


def _named_in(read: Iterable[SizeTest], sizes: Sizes) -> set[str]:
    """The sizes that became plain numbers; all of them where it is not known which."""
    found: set[str] = set()
    for test in read:
        names = set(leaves(test.number))
        found |= names if names and names <= set(sizes) else set(sizes)
    return found


def _last(example: Example, dim: str, own: int, allowed: SizeRange, is_read: bool) -> int:
    """The largest size that is probed."""
    whole = sum(array.size for array in example.arrays.values())
    growth = max(MAX_ELEMENTS // max(whole, 1), 4)
    declared = (dim in example.declared and allowed.max) or 0
    wanted = max(READ_UP_TO, declared) if is_read else 2 * own + 1
    last = max(min(wanted, growth * own), own)
    return last if allowed.max is None else min(last, allowed.max)


def _chosen(own: int, last: int, budget: int, allowed: SizeRange) -> list[int]:
    """All sizes up to the last one, if they are few enough; else powers of two, and the neighbours of the example's."""
    if last <= budget:
        return [n for n in range(max(allowed.min, 1), last + 1) if n != own]
    powers = [1 << k for k in range(last.bit_length())]
    near = [own + k * allowed.multiple_of for k in (-1, 1, 2, 3)] if budget > len(powers) else []
    steps = [allowed.first_from(n) for n in [1, *powers, *near]]
    top = [allowed.nearest(last) or last] if last > 2 * own + 1 else []
    return sorted({n for n in [*steps, *top] if allowed.min <= n <= last and n != own})


class _Probes:
    """What came of the probed sizes of one name, and by that of those between."""

    def __init__(self, dim: str, sizes: Sizes, record: Recorder, rules: SizeRules) -> None:
        self.dim, self.own, self.sizes, self.record, self.rules = dim, sizes[dim], sizes, record, rules
        self.outcomes = {self.own: Outcome.SAME}

    def allowed(self, size: int) -> bool:
        return self.rules.broken({**self.sizes, self.dim: size}) is None

    def one(self, size: int) -> Outcome:
        if size not in self.outcomes:
            self.outcomes[size] = self.record({**self.sizes, self.dim: size})
        return self.outcomes[size]

    def at(self, probed: Sequence[int]) -> None:
        """Probe these sizes, and where the outcome changes between two of them, those between."""
        for size in filter(self.allowed, probed):
            self.one(size)
        for low, high in pairwise(sorted(self.outcomes)):
            while self.outcomes[low] != self.outcomes[high]:
                inside = [n for n in range(low + 1, high) if self.allowed(n)]
                if not inside:
                    break
                middle = inside[len(inside) // 2]
                low, high = (middle, high) if self.one(middle) == self.outcomes[low] else (low, middle)

    def range(self, before: SizeRange, *, limited: bool) -> SizeRange:
        """The sizes at which the graph is right, as one range around the example's."""
        if not limited and set(self.outcomes.values()) == {Outcome.SAME}:
            return before
        ordered = sorted(self.outcomes)
        same = [self.outcomes[size] is Outcome.SAME for size in ordered]

        def holds(size: int) -> bool:
            if size not in before or (limited and size > ordered[-1]):
                return False
            below, above = bisect_right(ordered, size) - 1, bisect_left(ordered, size)
            return same[max(below, 0)] and same[min(above, len(same) - 1)]

        return range_around(self.own, holds, {before.multiple_of}, min(1, before.min))


def _right_at_corners(
    record: Recorder, sizes: Sizes, rules: SizeRules, ranges: dict[str, SizeRange], batch: str | None
) -> dict[str, SizeRange]:
    """Ranges of several sizes, each of which was probed with the others as they are in the example: halved until the
    graph is right where all are at their ends, too. The batch comes last: a file takes one sample and a few."""

    def right() -> bool:
        ends = product(*({each.min, each.max or sizes[dim]} for dim, each in ranges.items()))
        corners = ({**sizes, **dict(zip(ranges, each, strict=True))} for each in ends)
        return all(rules.broken(each) is not None or record(each) is Outcome.SAME for each in corners)

    while len(ranges) > 1 and not right():
        wide = [dim for dim, each in ranges.items() if each.min != each.max]
        if not wide:
            break
        ranges = ranges | {dim: _halved(ranges[dim], sizes[dim]) for dim in wide if dim != batch or wide == [batch]}
    return ranges


def _halved(whole: SizeRange, own: int) -> SizeRange:
    """Half as far below and above the example's size."""
    step = whole.multiple_of
    below, above = (own - whole.min) // step // 2 * step, ((whole.max or own) - own) // step // 2 * step
    return replace(whole, min=own - below, max=own + above)
