"""Who runs together, who is told about a failure, and what becomes of those that nobody waits for."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from waiting import give_way

from ox.errors import ServeError

BAD = 999.0


def test_waiting_for_a_fuller_batch(workshop: Any) -> None:
    async def body() -> None:
        batcher = workshop.batcher(max_wait_s=10.0, max_rows=3)
        notes = [workshop.Note() for _ in range(3)]
        for note in notes:
            batcher.submit(note)
        await asyncio.gather(*(note.settled() for note in notes))
        assert workshop.batches == [3] and batcher.stats.by_reason() == {"full": 1, "idle": 0, "wait": 0, "deadline": 0}

    workshop.run(body)


def test_it_does_not_wait_for_ever(workshop: Any) -> None:
    async def body() -> None:
        batcher = workshop.batcher(max_wait_s=0.02, max_rows=3)
        note = workshop.Note()
        batcher.submit(note)
        await asyncio.to_thread(workshop.clock.until_waiting)
        workshop.clock.advance(0.019)
        await asyncio.to_thread(workshop.clock.until_waiting)
        assert not note.answers
        workshop.clock.advance(0.001)
        await note.settled()
        assert workshop.batches == [1] and batcher.stats.wait == 1

    workshop.run(body)


def test_a_deadline_ends_the_waiting(workshop: Any) -> None:
    async def body() -> None:
        batcher = workshop.batcher(max_wait_s=15.0, max_rows=3)
        note = workshop.Note(parameters={"timeout": 300_000})
        batcher._admission.run_s = 0.2  # what a run is known to take
        batcher.submit(note)
        await asyncio.to_thread(workshop.clock.until_waiting)
        workshop.clock.advance(0.101)
        await note.settled()
        assert note.error is None and batcher.stats.deadline == 1

    workshop.run(body)


def test_filling_one_batch_does_not_keep_another_from_an_idle_instance(workshop: Any) -> None:
    other = threading.Event()
    met: list[bool] = []

    def run(x: Any, _: Any) -> Any:
        if x.shape[1] == 2:
            other.set()
        else:
            met.append(other.wait(120))
        return x

    async def body() -> None:
        batcher = workshop.batcher(run, run, max_wait_s=0.03)
        notes = [workshop.Note(key=(1,)), workshop.Note(key=(2,))]
        for note in notes:
            batcher.submit(note)
            await asyncio.to_thread(workshop.clock.until_waiting)  # one knows of it; another may not have looked yet
            workshop.clock.advance(0.01)
        workshop.clock.advance(0.01)  # the first is full of waiting, and runs
        await workshop.begun()
        workshop.clock.advance(0.01)
        await asyncio.gather(*(note.settled() for note in notes))
        assert met == [True]

    workshop.run(body)


def test_an_idle_instance_takes_what_is_there(workshop: Any) -> None:
    async def body() -> None:
        batcher = workshop.batcher()
        for rows in (1, 2):
            note = workshop.Note(rows)
            batcher.submit(note)
            await note.settled()
            assert len(note.outputs[0]) == rows and note.started >= note.arrived
        assert workshop.batches == [1, 2] and batcher.stats.idle == 2

    workshop.run(body)


@pytest.mark.parametrize("here", [False, True], ids=["thread", "loop"])
@pytest.mark.parametrize("bad", [[2], [0, 7], [3, 4, 5]])
def test_a_failing_batch_is_halved_until_the_culprits_are_alone(workshop: Any, here: bool, bad: list[int]) -> None:
    sizes: list[int] = []
    gate = workshop.Gate()

    def run(x: Any, _: Any) -> Any:
        if not here:
            gate.hold()
        sizes.append(len(x))
        if (x == BAD).any():
            raise ServeError("the model cannot run on this input", status=400)
        return x * 2

    async def body() -> None:
        batcher = workshop.batcher(run)
        notes = [workshop.Note(value=BAD if index in bad else index) for index in range(8)]
        first = workshop.Note()
        if not here:
            batcher.submit(first)
            await workshop.begun()
        for note in notes:
            (batcher.submit_inline if here else batcher.submit)(note)
        gate.set()
        await asyncio.gather(*(note.settled() for note in notes))
        for index, note in enumerate(notes):
            assert note.answers == 1
            if index in bad:
                assert note.error.status == 400
            else:
                assert note.error is None and note.outputs[0].tolist() == [[2 * index]]
        assert max(sizes) == 8 and sizes.count(1) < 8 + (not here) and batcher.stats.split

    workshop.run(body)


def test_a_row_that_crashes_the_run(workshop: Any) -> None:
    """Not an error of ours: whatever the runtime throws."""

    def run(x: Any, _: Any) -> Any:
        if (x == BAD).any():
            raise MemoryError("no memory")
        return x

    async def body() -> None:
        batcher = workshop.batcher(run)
        notes = [workshop.Note(value=value) for value in (1.0, BAD)]
        for note in notes:
            batcher.submit_inline(note)
        await asyncio.gather(*(note.settled() for note in notes))
        assert notes[0].error is None
        assert notes[1].error.status == 500 and notes[1].error.got == "no memory"

    workshop.run(body)


@pytest.mark.parametrize("here", [False, True], ids=["thread", "loop"])
def test_only_what_succeeded_counts_as_inferred(workshop: Any, here: bool) -> None:
    def run(x: Any, _: Any) -> Any:
        workshop.clock.advance(0.25)
        if (x == BAD).any():
            raise ServeError("the model cannot run on this input", status=400)
        return x

    async def body() -> None:
        batcher = workshop.batcher(run)
        for value, rows in ((BAD, 1), (0.0, 2), (BAD, 3)):
            note = workshop.Note(rows, value=value)
            (batcher.submit_inline if here else batcher.submit)(note)
            await note.settled()
        assert workshop.batches == [2] and batcher.stats.idle == 3
        assert batcher._admission.run_s == (0.0 if here else 0.25 / 16)

    workshop.run(body)


def test_a_run_that_was_ended_does_not_count_as_inferred(workshop: Any) -> None:
    def run(x: Any, control: Any) -> Any:
        if (x == BAD).any():
            workshop.Gate().hold(control)
        return x

    async def body() -> None:
        batcher = workshop.batcher(run)
        late, fine = workshop.Note(value=BAD, parameters={"timeout": 20_000}), workshop.Note()
        batcher.submit(late)
        await workshop.begun()
        workshop.clock.advance(0.02)
        await late.settled()
        batcher.submit(fine)
        await fine.settled()
        assert late.error.status == 504 and workshop.batches == [1]

    workshop.run(body)


def test_a_batch_with_another_number_of_rows_is_not_divided(workshop: Any) -> None:
    """Two rows for each that went in: nobody is given another's, each is run alone."""

    async def body() -> None:
        batcher = workshop.batcher(lambda x, _: np.concatenate([x, x + 1]), max_wait_s=60.0, max_rows=4)
        notes = [workshop.Note(value=10.0 * number) for number in range(4)]
        for note in notes:
            batcher.submit(note)
        await asyncio.gather(*(note.settled() for note in notes))
        got = [note.outputs[0].ravel().tolist() for note in notes]
        assert got == [[10.0 * number, 10.0 * number + 1] for number in range(4)] and batcher.stats.split == 1

    workshop.run(body)


def test_nan_is_an_answer(workshop: Any) -> None:
    async def body() -> None:
        batcher = workshop.batcher(lambda x, _: x + np.float32("nan"))
        note = workshop.Note()
        batcher.submit(note)
        await note.settled()
        assert note.error is None and np.isnan(note.outputs[0]).all()

    workshop.run(body)


def test_gone_clients_are_dropped_when_the_batch_is_formed(workshop: Any) -> None:
    gate = workshop.Gate()

    def run(x: Any, _: Any) -> Any:
        gate.hold()
        return x

    async def body() -> None:
        batcher = workshop.batcher(run)
        first, gone, stays = workshop.Note(), workshop.Note(), workshop.Note()
        batcher.submit(first)
        await workshop.begun()
        batcher.submit(gone)
        batcher.submit(stays)
        gone.abandon()
        gate.set()
        await stays.settled()
        assert workshop.batches == [1, 1] and gone.answers == 0 and batcher.stats.gone == 1

    workshop.run(body)


def test_a_run_that_nobody_waits_for_is_ended(workshop: Any) -> None:
    ended: list[bool] = []
    runs: list[int] = []

    def run(x: Any, control: Any) -> Any:
        runs.append(len(x))
        if (x == BAD).any():
            try:
                workshop.Gate().hold(control)
            finally:
                ended.append(control.terminate)
        return x

    async def body() -> None:
        batcher = workshop.batcher(run)
        notes = [workshop.Note(value=BAD) for _ in range(2)]
        with batcher._ready:  # both in one batch
            for note in notes:
                batcher._admission.put(note, note.request.key)
            batcher._ready.notify()
        await workshop.begun()
        control = batcher._running_batches[0].control
        notes[0].abandon()
        assert not control.terminate  # somebody still waits
        notes[1].abandon()
        assert control.terminate
        last = workshop.Note()
        batcher.submit(last)
        await last.settled()
        assert runs == [2, 1]  # not in halves
        assert ended == [True] and last.error is None and [note.answers for note in notes] == [0, 0]

    workshop.run(body)


def test_an_answer_that_fails_leaves_the_others_theirs(workshop: Any, caplog: Any) -> None:
    async def body() -> None:
        batcher = workshop.batcher()
        broken, fine = workshop.Note(), workshop.Note()
        broken.answers = "not a number"
        batcher.submit_inline(broken)
        batcher.submit_inline(fine)
        await fine.settled()
        assert fine.error is None and "could not be given" in caplog.text

    workshop.run(body)


def test_a_refusal_that_fails_leaves_the_others_theirs(workshop: Any, caplog: Any) -> None:
    async def body() -> None:
        batcher = workshop.batcher()
        for fails in (batcher.submit_inline, batcher.submit):  # before the run, on either way
            broken, fine = workshop.Note(parameters={"timeout": 1}), workshop.Note()
            workshop.clock.advance(1e-6)
            broken.answers = "not a number"
            fails(broken)
            fails(fine)
            await fine.settled()
            assert fine.error is None
        assert caplog.text.count("could not be given") == 2 and batcher.stats.late == 2

    workshop.run(body)


def test_what_fails_in_one_turn_of_the_loop_is_not_the_end_of_all(workshop: Any) -> None:
    async def body() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        batcher = workshop.batcher()
        count, fails = batcher._observe, iter([True])

        def observe(*figures: Any) -> None:
            if next(fails, False):
                raise ZeroDivisionError
            count(*figures)

        batcher._observe = observe
        notes = [workshop.Note(key=(size,)) for size in (1, 2, 3)]  # three batches
        for note in notes:
            batcher.submit_inline(note)
        await asyncio.gather(*(note.settled() for note in notes[1:]))
        later = workshop.Note()
        batcher.submit_inline(later)
        await later.settled()
        assert workshop.batches == [1, 1, 1]

    workshop.run(body)


def test_nothing_outlives_its_answer(workshop: Any) -> None:
    """A request's bytes are freed without the garbage collector, which may not run for a long time."""

    async def body() -> None:
        batcher = workshop.batcher()
        note = workshop.Note()
        array = weakref.ref(note.request.feed["x"])
        idle = asyncio.ensure_future(workshop.idle(batcher))
        await give_way()
        batcher.submit(note)
        await note.settled()
        await idle
        gc.disable()
        try:
            del note
            assert array() is None
        finally:
            gc.enable()

    workshop.run(body)


def test_several_instances_lose_and_repeat_nothing(workshop: Any) -> None:
    async def body() -> None:
        batcher = workshop.batcher(*[lambda x, _: x + 1] * 4, max_queue=5000)
        notes = [workshop.Note(rows=index % 3 + 1, key=(index % 5 + 1,), value=index) for index in range(1000)]
        for note in notes:
            batcher.submit(note)
            if note.request.rows == 3:
                await give_way()
        await asyncio.gather(*(note.settled() for note in notes))
        for index, note in enumerate(notes):
            assert note.answers == 1 and (note.outputs[0] == index + 1).all()
            assert note.outputs[0].shape == (index % 3 + 1, index % 5 + 1)
        assert sum(workshop.batches) == sum(note.request.rows for note in notes) and max(workshop.batches) <= 8

    workshop.run(body)


def test_a_part_of_a_batch_is_enough(workshop: Any) -> None:
    """`fill_rows` of them are not waited for any longer, however long one may wait."""

    async def body() -> None:
        batcher = workshop.batcher(max_wait_s=60.0, deadline_s=100.0)
        batcher.fill_rows = 3
        jobs = [workshop.Note() for _ in range(3)]
        for job in jobs:
            batcher.submit(job)
        for job in jobs:
            await job.settled()
        assert workshop.batches == [3] and batcher.stats.idle == 1

    workshop.run(body)


def test_jobs_are_told_of_before_they_are_answered(workshop: Any) -> None:
    """Those that ran, in one go, and those that were given up."""

    async def body() -> None:
        batcher, told = workshop.batcher(), []
        batcher.returned = lambda jobs: told.extend((job, job.answers, job.abandoned) for job in jobs)
        ran, late = workshop.Note(), workshop.Note()
        batcher.submit(ran)
        await ran.settled()
        batcher.drop([late])
        assert told == [(ran, 0, False), (late, 1, True)] and late.error is not None

    workshop.run(body)
