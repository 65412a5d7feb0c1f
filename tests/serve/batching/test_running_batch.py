"""Jobs that are abandoned, or late, at the very moment in which their run begins."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ox.serve.batching import batcher as module
from ox.serve.batching.running_batch import RunningBatch


class Slow(list[Any]):
    """Jobs between whose boarding something happens on the event loop."""

    happens: Any = None

    def __iter__(self) -> Iterator[Any]:
        for place, job in enumerate(super().__iter__()):
            if place == 1 and self.happens is not None:
                happens, self.happens = self.happens, None
                happens()
            yield job


@pytest.mark.parametrize("leaves", [0, 1])
def test_one_that_leaves_while_the_jobs_board_ends_nothing(workshop: Any, leaves: int) -> None:
    jobs = Slow([workshop.Note() for _ in range(3)])
    jobs.happens = list(jobs)[leaves].abandon
    running_batch = RunningBatch(jobs, SimpleNamespace(terminate=False), "idle")
    assert not running_batch.control.terminate
    for job in list(jobs)[1 - leaves : 3 : 1 + leaves]:
        job.abandon()
    assert running_batch.control.terminate


def test_all_that_leave_while_they_board_end_it(workshop: Any) -> None:
    jobs = Slow([workshop.Note() for _ in range(2)])
    jobs.happens = lambda: [job.abandon() for job in list(jobs)]
    assert RunningBatch(jobs, SimpleNamespace(terminate=False), "idle").control.terminate


def test_the_run_of_a_half_ends_with_the_client_that_still_waits(workshop: Any) -> None:
    """A batch failed and was split: what its first half delivered, and how that ended, does not keep the second."""

    def run(x: Any, control: Any) -> Any:
        if len(x) == 2:
            raise RuntimeError("not together")
        if x[0, 0] == 1:
            workshop.Gate().hold(control)
        return x

    async def body() -> None:
        batcher = workshop.batcher(run)
        answered, waits = workshop.Note(), workshop.Note(value=1)
        with batcher._ready:  # both in one batch
            for note in (answered, waits):
                batcher._admission.put(note, note.request.key)
            batcher._ready.notify()
        await answered.settled()
        await workshop.begun(3)  # the batch, and each half
        control = batcher._running_batches[0].control
        assert answered.error is None and not control.terminate
        waits.abandon()
        assert control.terminate

    workshop.run(body)


def test_a_deadline_is_not_forgotten_while_the_run_begins(workshop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer looks at the queue and at the flights: a job is in one of them whenever it can look."""
    found: list[float | None] = []

    async def body() -> None:
        batcher = workshop.batcher()

        def board(jobs: Any, control: Any, reason: str) -> RunningBatch:
            if batcher._ready.acquire(blocking=False):  # the event loop could, too
                batcher._ready.release()
                found.append(batcher._overdue(workshop.clock.now()))
            return RunningBatch(jobs, control, reason)

        monkeypatch.setattr(module, "RunningBatch", board)
        note = workshop.Note(parameters={"timeout": 10_000_000})
        batcher.submit(note)
        await note.settled()
        assert None not in found

    workshop.run(body)
