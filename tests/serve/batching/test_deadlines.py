"""Deadlines: in the queue, in the model, and whatever becomes of the machine's clock."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from manual_clock import ManualClock
from waiting import give_way

import ox.serve.batching
import ox.serve.runtime
from ox.serve.batching.deadlines import RESOLUTION_S, Deadlines, late


def held(workshop: Any, **options: Any) -> tuple[Any, Any]:
    """A batcher of one instance that runs when it may, or until it is ended."""
    gate = workshop.Gate()

    def run(x: Any, control: Any) -> Any:
        gate.hold(control)
        return x

    return workshop.batcher(run, **options), gate


def hurry(workshop: Any, batcher: Any, note: Any) -> None:
    """Gives a job that runs a deadline close by, and lets it pass."""
    note.deadline = workshop.clock.now() + 0.02
    batcher._deadlines.watch(note.deadline)
    workshop.clock.advance(0.02)


async def busy(workshop: Any, batcher: Any, **how: Any) -> Any:
    """A job that keeps the only instance busy."""
    first = workshop.Note(**how)
    batcher.submit(first)
    await workshop.begun(workshop.runs + 1)
    return first


def test_in_the_queue_while_every_instance_is_busy(workshop: Any) -> None:
    async def body() -> None:
        batcher, gate = held(workshop)
        first = await busy(workshop, batcher)
        soon, later = workshop.Note(parameters={"timeout": 20_000}), workshop.Note()
        batcher.submit(later)
        batcher.submit(soon)
        workshop.clock.advance(0.02)
        await soon.settled()
        assert soon.error.status == 504 and "in the queue" in soon.error.got
        assert (later.answers, first.answers, batcher.depth) == (0, 0, 1)
        gate.set()
        await later.settled()
        assert later.error is None and batcher.stats.late == 1 and soon.answers == 1

    workshop.run(body)


def test_the_model_s_own_deadline_is_for_those_that_have_none(workshop: Any) -> None:
    async def body() -> None:
        batcher, _ = held(workshop, deadline_s=0.05)
        first = await busy(workshop, batcher, parameters={"timeout": 19_000_000})
        usual = workshop.Note()
        batcher.submit(usual)
        workshop.clock.advance(0.05)
        await usual.settled()
        assert usual.error.status == 504 and first.answers == 0
        first.abandon()

    workshop.run(body)


def test_a_run_past_all_its_deadlines_is_ended(workshop: Any) -> None:
    async def body() -> None:
        batcher, _ = held(workshop)
        first = await busy(workshop, batcher)
        after = workshop.Note(parameters={"timeout": 10_000_000})
        batcher.submit(after)
        hurry(workshop, batcher, first)
        await first.settled()
        assert first.error.status == 504 and "and the model" in first.error.got
        await workshop.begun(2)  # the instance is free again
        after.abandon()
        await workshop.finished(batcher)
        assert first.answers == 1 and after.answers == 0

    workshop.run(body)


def test_one_that_is_late_does_not_end_the_run_of_others(workshop: Any) -> None:
    async def body() -> None:
        batcher, gate = held(workshop)
        notes = [workshop.Note(), workshop.Note()]
        with batcher._ready:
            for note in notes:
                batcher._admission.put(note, note.request.key)
            batcher._ready.notify()
        await workshop.begun()
        hurry(workshop, batcher, notes[0])
        await notes[0].settled()
        assert notes[0].error.status == 504 and notes[1].answers == 0
        gate.set()
        await notes[1].settled()
        assert notes[1].error is None and workshop.batches == [2] and notes[0].answers == 1

    workshop.run(body)


def test_what_is_late_when_the_batch_is_formed_is_not_run(workshop: Any) -> None:
    async def body() -> None:
        batcher, gate = held(workshop)
        await busy(workshop, batcher)
        missed = workshop.Note()
        batcher.submit(missed)
        missed.deadline = workshop.clock.now() - 1  # the timer does not know
        gate.set()
        await missed.settled()
        assert missed.error.status == 504 and workshop.batches == [1]

    workshop.run(body)


def test_on_the_loop_too(workshop: Any) -> None:
    async def body() -> None:
        batcher = workshop.batcher()
        missed, fine = workshop.Note(parameters={"timeout": 1}), workshop.Note()
        workshop.clock.advance(1e-6)
        batcher.submit_inline(missed)
        batcher.submit_inline(fine)
        await fine.settled()
        assert missed.error.status == 504 and fine.error is None and workshop.batches == [1]

    workshop.run(body)


@pytest.mark.parametrize("step", [-86400.0, 86400.0])
def test_a_step_of_the_calendar(workshop: Any, step: float) -> None:
    real = workshop.clock.calendar

    async def body() -> None:
        batcher, gate = held(workshop, deadline_s=10.0)
        first = await busy(workshop, batcher)
        soon, later = workshop.Note(parameters={"timeout": 50_000}), workshop.Note()
        batcher.submit(soon)
        batcher.submit(later)
        workshop.clock.calendar = lambda: real() + step
        await give_way()
        assert not soon.answers
        workshop.clock.advance(0.05)
        await soon.settled()
        assert soon.error.status == 504 and later.answers == first.answers == 0
        gate.set()
        await later.settled()
        assert later.error is None

    workshop.run(body)


def test_nothing_here_reads_a_clock_that_can_be_set() -> None:
    for room in (ox.serve.batching, ox.serve.runtime):
        for path in Path(str(room.__file__)).parent.glob("*.py"):
            text = path.read_text()  # tests/test_walls.py says who may import `time`
            assert ".calendar" not in text and "datetime" not in text, path


def test_one_timer_however_many_deadlines() -> None:
    set_at: list[float] = []
    fired: list[float] = []
    loop: Any = SimpleNamespace(
        call_later=lambda wait, call: set_at.append(wait) or SimpleNamespace(cancel=lambda: None)  # type: ignore[func-returns-value]
    )
    clock = ManualClock()
    deadlines = Deadlines(loop, lambda now: fired.append(now) or None, clock)  # type: ignore[func-returns-value]
    now = clock.now()
    deadlines.watch(now + 10)
    for index in range(100):
        deadlines.watch(now + 11 + index)
        deadlines.watch(now + 10 - index * RESOLUTION_S / 200)  # hardly earlier
    assert len(set_at) == 1
    deadlines.watch(now + 1)
    deadlines.watch(now - 1)  # past already: at once, but not in a busy loop
    assert len(set_at) == 3 and set_at[-1] == RESOLUTION_S
    deadlines._fire()
    assert len(fired) == 1 and len(set_at) == 3
    deadlines.watch(now + 5)
    assert len(set_at) == 4


def test_late(workshop: Any) -> None:
    note = workshop.Note()
    assert not late(1e12)(note)
    note.deadline = 5.0
    assert late(5.0)(note) and not late(4.9)(note)
    note.abandoned = True
    assert late(0.0)(note)
