"""The order of what waits: groups, ranks, batches that are full."""

from __future__ import annotations

import random
from typing import Any

from ox.serve.batching.queue import Queue


def never(_: Any) -> bool:
    return False


def test_oldest_first_and_like_with_like(workshop: Any) -> None:
    queue = Queue()
    notes = [workshop.Note(value=index) for index in range(6)]
    for index, note in enumerate(notes):
        queue.put(note, index % 2, float(index), 4)
    assert (queue.jobs, queue.rows, queue.size) == (6, 6, 24)
    assert queue.take(8, never) == (notes[0::2], False, [])
    assert queue.take(2, never) == (notes[1:4:2], True, [])
    assert queue.take(2, never) == ([notes[5]], False, [])
    assert queue.take(2, never).jobs == [] and (queue.jobs, queue.rows, queue.size) == (0, 0, 0)


def test_what_does_not_fit_is_passed_over_and_comes_first_then(workshop: Any) -> None:
    queue = Queue()
    notes = [workshop.Note(rows) for rows in (3, 3, 3, 1, 20)]
    for index, note in enumerate(notes):
        queue.put(note, "", float(index), 0)
    assert queue.take(8, never) == ([notes[0], notes[1], notes[3]], True, [])
    assert queue.take(8, never) == ([notes[2]], True, [])
    assert queue.take(8, never) == ([notes[4]], True, [])


def test_rank_rules_over_arrival(workshop: Any) -> None:
    queue = Queue()
    low, high, other = workshop.Note(), workshop.Note(), workshop.Note()
    queue.put(low, "a", 5.0, 0)
    queue.put(other, "b", 4.0, 0)
    queue.put(high, "a", 1.0, 0)
    assert queue.take(1, never).jobs == [high]
    assert queue.take(1, never).jobs == [other]
    assert queue.take(1, never).jobs == [low]


def test_stale_jobs_leave_on_the_way_or_at_once(workshop: Any) -> None:
    queue = Queue()
    notes = [workshop.Note() for _ in range(6)]
    for index, note in enumerate(notes):
        queue.put(note, index // 3, float(index), 1)
    gone = {id(note) for note in notes[:4]}
    assert queue.take(8, lambda job: id(job) in gone) == (notes[4:], False, notes[:4])
    for index, note in enumerate(notes):
        queue.put(note, index // 3, float(index), 1)
    notes[5].deadline, notes[1].deadline = 3.0, 2.0
    assert queue.earliest() == 2.0
    assert queue.remove_stale(lambda job: job is notes[0] or job is notes[1]) == notes[:2]
    assert queue.earliest() == 3.0 and (queue.jobs, queue.rows, queue.size) == (4, 4, 4)
    assert queue.take(8, never).jobs == [notes[2]]


def test_many_groups_in_any_order(workshop: Any) -> None:
    """Against a list that is sorted anew each time."""
    generator = random.Random(0)
    queue = Queue()
    waiting: list[tuple[float, int, Any]] = []
    for number in range(3000):
        if generator.random() < 0.55:
            key, rank = generator.randrange(40), generator.random() * 100
            note = workshop.Note()
            queue.put(note, key, rank, 1)
            waiting.append((rank, key, note))
        elif waiting and number % 7 == 0:
            out = {id(entry[2]) for entry in generator.sample(waiting, min(3, len(waiting)))}
            assert len(queue.remove_stale(lambda job, out=out: id(job) in out)) == len(out)  # type: ignore[misc]
            waiting = [entry for entry in waiting if id(entry[2]) not in out]
        else:
            waiting.sort(key=lambda entry: entry[0])
            expected = [entry for entry in waiting if entry[1] == waiting[0][1]][:4] if waiting else []
            assert queue.take(4, never).jobs == [entry[2] for entry in expected]
            waiting = [entry for entry in waiting if entry not in expected]
        assert queue.jobs == len(waiting)
