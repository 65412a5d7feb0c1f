"""Items by deadline."""

from __future__ import annotations

import random

from ox.serve.batching.deadline_heap import STALE, DeadlineHeap


def test_the_earliest_is_first() -> None:
    heap: DeadlineHeap[str] = DeadlineHeap()
    assert heap.first() is None and heap.pop_due(9.0) == []
    numbers = {name: heap.push(deadline, name) for deadline, name in ((3.0, "c"), (1.0, "a"), (2.0, "b"))}
    assert heap.first() == 1.0 and len(heap) == 3
    assert heap.pop_due(2.0) == [(numbers["a"], "a"), (numbers["b"], "b")]
    assert list(heap) == [(numbers["c"], "c")] and heap.first() == 3.0


def test_what_was_taken_out_is_not_due() -> None:
    heap: DeadlineHeap[str] = DeadlineHeap()
    first, second = heap.push(1.0, "a"), heap.push(2.0, "b")
    heap.remove(first)
    heap.remove(first)
    assert heap.first() == 2.0
    assert heap.pop_due(5.0) == [(second, "b")] and heap.first() is None


def test_items_that_are_gone_leave_nothing() -> None:
    """Though their deadline is far away."""
    heap: DeadlineHeap[int] = DeadlineHeap()
    for step in range(10_000):
        heap.remove(heap.push(1e9 - step, step))
    assert len(heap) == 0 and len(heap._heap) <= STALE + 1


def test_against_a_sorted_list() -> None:
    dice = random.Random(1)
    heap: DeadlineHeap[float] = DeadlineHeap()
    kept: dict[int, float] = {}
    for now in range(300):
        for _ in range(dice.randrange(6)):
            deadline = now + dice.uniform(0, 100)
            kept[heap.push(deadline, deadline)] = deadline
        if kept and dice.random() < 0.7:
            number = dice.choice(list(kept))
            heap.remove(number)
            del kept[number]
        due = heap.pop_due(now)
        assert [item for _, item in due] == sorted(item for item in kept.values() if item <= now)
        for number, _ in due:
            del kept[number]
        assert dict(heap) == kept and heap.first() == min(kept.values(), default=None)
