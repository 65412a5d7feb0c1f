"""What may wait: rows, bytes, priorities that age."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve.batching.admission import Budget, QueueAdmission
from ox.serve.response_memory import ResponseMemory


def admission(**options: Any) -> QueueAdmission:
    return QueueAdmission(**({"max_queue": 10, "deadline_s": 10.0} | options))


def never(_: Any) -> bool:
    return False


def test_rows_count_not_requests(workshop: Any) -> None:
    own = admission()
    for rows in (4, 6):
        own.put(workshop.Note(rows), "")
    with pytest.raises(ServeError, match="busy") as caught:
        own.put(workshop.Note(1), "")
    assert caught.value.status == 503 and caught.value.got == "10 samples wait already"


def test_a_request_larger_than_the_queue_waits_alone(workshop: Any) -> None:
    own = admission()
    own.put(workshop.Note(50), "")
    with pytest.raises(ServeError):
        own.put(workshop.Note(1), "")


def test_strings_count(workshop: Any) -> None:
    budget = Budget(3 << 20, 0, ResponseMemory(3 << 20, SYSTEM))
    own = admission(budget=budget)
    own.open()
    for fits in (True, True, False):
        note = workshop.Note()
        note.request.feed["x"] = np.array([["a" * (1 << 20)]], object)
        if fits:
            own.put(note, "")
        else:
            with pytest.raises(ServeError, match="busy"):
                own.put(note, "")
    assert 2 << 20 < budget.held < 3 << 20


def test_bytes_of_all_models_together(workshop: Any) -> None:
    budget = Budget(100, 0, ResponseMemory(100, SYSTEM))
    one, other = admission(budget=budget), admission(budget=budget)
    one.open()
    other.open()
    one.put(workshop.Note(2, key=(10,)), "")
    assert budget.held == 80
    with pytest.raises(ServeError, match="busy") as caught:
        other.put(workshop.Note(1, key=(6,)), "")
    assert "80 bytes" in str(caught.value.got) and caught.value.status == 503
    other.put(workshop.Note(1, key=(5,)), "")
    one.close()
    one.close()
    assert budget.held == 20


def test_when_to_come_again_follows_from_how_fast_the_queue_drains(workshop: Any) -> None:
    own = admission(instances=2)
    for _ in range(200):
        own.ran(5, 2.5)  # 2 rows a second, twice
    own.put(workshop.Note(10), "")
    with pytest.raises(ServeError) as caught:
        own.put(workshop.Note(1), "")
    assert caught.value.retry_after == pytest.approx(2.5, rel=0.01)
    slow = admission(max_queue=10_000)
    for _ in range(200):
        slow.ran(1, 10.0)
    slow.put(workshop.Note(10_000), "")
    with pytest.raises(ServeError) as caught:
        slow.put(workshop.Note(1), "")
    assert caught.value.retry_after == 60


def test_clients_that_left_make_room(workshop: Any) -> None:
    own = admission()
    gone = [workshop.Note(5), workshop.Note(5)]
    for note in gone:
        own.put(note, "")
    gone[0].abandoned = True
    own.put(workshop.Note(3), "")
    assert own.queue.rows == 8


def order(own: QueueAdmission, workshop: Any, *jobs: tuple[int, float]) -> list[int]:
    """Puts jobs of (priority, arrival), and gives their numbers back in the order in which they leave."""
    notes = []
    for priority, arrived in jobs:
        note = workshop.Note(parameters={"priority": priority})
        note.arrived = arrived
        own.put(note, "")
        notes.append(note)
    return [notes.index(own.queue.take(1, never).jobs[0]) for _ in notes]


def test_priorities(workshop: Any) -> None:
    assert order(admission(), workshop, (9, 0.0), (0, 0.01), (1, 0.02), (5, 0.03)) == [2, 1, 3, 0]
    assert order(admission(), workshop, (2, 0.0), (1, 0.0)) == [1, 0]
    assert order(admission(levels=3, usual=3), workshop, (9, 0.0), (3, 0.001), (0, 0.002)) == [
        0,
        1,
        2,
    ]  # all the lowest


def test_priorities_age(workshop: Any) -> None:
    """The lowest waits a quarter of the deadline longer than the highest at most, however many of those come."""
    own = admission(max_queue=1000)
    jobs = [(10, 0.0), *((1, 0.1 * number) for number in range(100))]
    place = order(own, workshop, *jobs).index(0)
    assert place == 1 + int(9 * 0.25 / 0.1)


def test_a_flood_of_high_priority_does_not_starve_the_low(workshop: Any) -> None:
    async def body() -> None:
        batcher = workshop.batcher(deadline_s=0.4, max_rows=1, max_queue=10_000)
        low = workshop.Note(parameters={"priority": 10, "timeout": 15_000_000})
        flood = [workshop.Note(parameters={"priority": 1}) for _ in range(4)]
        for note in flood:
            batcher.submit(note)
        batcher.submit(low)
        for _ in range(20):  # four always wait, and the lowest waits a quarter of the deadline longer
            flood = [note for note in flood if not note.answers]
            while len(flood) < 4:
                flood.append(workshop.Note(parameters={"priority": 1}))
                batcher.submit(flood[-1])
            workshop.clock.advance(0.01)
            await flood[0].settled()
        assert low.answers and low.error is None

    workshop.run(body)


@pytest.mark.parametrize(
    ("deadline_s", "asked_s", "expected_s"),
    [(10.0, 0, 10), (10.0, 5, 5), (10.0, 15, 15), (10.0, 100, 20), (30.0, 100, 30), (10.0, 1 << 40, 20)],
)
def test_a_timeout_is_cut_to_the_limit(workshop: Any, deadline_s: float, asked_s: int, expected_s: float) -> None:
    job = workshop.Note(parameters={"timeout": 1_000_000 * asked_s})
    admission(deadline_s=deadline_s, timeout_s=20.0).put(job, "")
    assert job.deadline == pytest.approx(job.arrived + expected_s)
