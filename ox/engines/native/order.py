"""What must run before what, while nodes are merged into one: reachability as bit sets."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush


class Order:
    """A partial order of numbers, of which some stand for several that were merged."""

    def __init__(self, before: list[set[int]]) -> None:
        """
        Args:
            before: for each number those that directly precede it; they are smaller.
        """
        count = len(before)
        self._mask = [1 << i for i in range(count)]
        self._stands_for = list(range(count))
        self._edges = [(p, i) for i, predecessors in enumerate(before) for p in predecessors]
        self._above = [0] * count  # everything before
        self._below = [0] * count
        for i, predecessors in enumerate(before):
            for p in predecessors:
                self._above[i] |= self._above[p] | 1 << p
        for i in reversed(range(count)):
            for p in before[i]:
                self._below[p] |= self._below[i] | 1 << i

    def find(self, number: int) -> int:
        """The number that stands for this one."""
        while self._stands_for[number] != number:
            self._stands_for[number] = self._stands_for[self._stands_for[number]]
            number = self._stands_for[number]
        return number

    def precedes(self, first: int, second: int) -> bool:
        """Whether the first must run before the second."""
        return bool(self._mask[self.find(first)] & self._above[self.find(second)])

    def following(self, number: int) -> int:
        """What must run behind a number, as a set of bits."""
        return self._below[self.find(number)]

    def contains(self, number: int, bits: int) -> bool:
        """Whether a number, or one that it stands for, is in a set of bits."""
        return bool(self._mask[self.find(number)] & bits)

    def can_merge(self, a: int, b: int) -> bool:
        """Whether nothing must run behind one of them and before the other."""
        a, b = self.find(a), self.find(b)
        return not (self._below[a] & self._above[b] or self._below[b] & self._above[a])

    def merge(self, a: int, b: int) -> int:
        """Let one number stand for both: they run at one time. Only where `can_merge`."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return a
        mask = self._mask[a] | self._mask[b]
        above = (self._above[a] | self._above[b]) & ~mask
        below = (self._below[a] | self._below[b]) & ~mask
        for x in self._each(above & ~(self._above[a] & self._above[b])):
            self._below[x] |= mask | below
        for x in self._each(below & ~(self._below[a] & self._below[b])):
            self._above[x] |= mask | above
        self._stands_for[b] = a
        self._mask[a], self._above[a], self._below[a] = mask, above, below
        return a

    def add(self, first: int, second: int) -> None:
        """Let the first run before the second, which must not precede it."""
        a, b = self.find(first), self.find(second)
        if self._mask[a] & self._above[b]:
            return
        self._edges.append((a, b))
        above, below = self._above[a] | self._mask[a], self._below[b] | self._mask[b]
        for x in self._each(above):
            self._below[x] |= below
        for x in self._each(below):
            self._above[x] |= above

    def sequence(self) -> list[int]:
        """Those that stand for all, each behind what must run before it, otherwise by the largest number of each."""
        found = {self.find(i) for i in range(len(self._mask))}
        behind: dict[int, set[int]] = {i: set() for i in found}
        waiting = dict.fromkeys(found, 0)
        for first, second in self._edges:
            a, b = self.find(first), self.find(second)
            if a != b and b not in behind[a]:
                behind[a].add(b)
                waiting[b] += 1
        ready = [(self._mask[i].bit_length(), i) for i in found if not waiting[i]]
        heapify(ready)
        result: list[int] = []
        while ready:
            _, i = heappop(ready)
            result.append(i)
            for below in behind[i]:
                waiting[below] -= 1
                if not waiting[below]:
                    heappush(ready, (self._mask[below].bit_length(), below))
        return result

    def _each(self, bits: int) -> Iterator[int]:
        """The numbers that stand for those of a bit set; some more than once."""
        while bits:
            low = bits & -bits
            bits ^= low
            yield self.find(low.bit_length() - 1)
