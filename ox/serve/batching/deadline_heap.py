"""Items by deadline."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

STALE = 64  # entries without an item that are not worth making the heap anew


class DeadlineHeap(Generic[T]):
    """Items by deadline: the first of them cost the logarithm of how many there are, and any can be taken out."""

    def __init__(self) -> None:
        self._items: dict[int, T] = {}
        self._heap: list[tuple[float, int]] = []  # deadlines and numbers, also of items that are gone
        self._number = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[tuple[int, T]]:
        return iter(self._items.items())

    def push(self, deadline: float, item: T) -> int:
        """Puts an item in; its number."""
        self._number += 1
        self._items[self._number] = item
        heappush(self._heap, (deadline, self._number))
        return self._number

    def remove(self, number: int) -> None:
        """Takes an item out, if it is there."""
        self._items.pop(number, None)
        if len(self._heap) > STALE + 2 * len(self._items):
            self._heap = [entry for entry in self._heap if entry[1] in self._items]
            heapify(self._heap)

    def pop_due(self, now: float) -> list[tuple[int, T]]:
        """Takes out the items whose deadline has come, with their numbers; the earliest is first."""
        due = []
        while (first := self.first()) is not None and first <= now:
            number = heappop(self._heap)[1]
            due.append((number, self._items.pop(number)))
        return due

    def first(self) -> float | None:
        """The earliest deadline."""
        while self._heap and self._heap[0][1] not in self._items:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._items.clear()
        self._heap.clear()
