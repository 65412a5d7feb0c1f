"""The schedule of sequences: order, states, slots, deadlines and clients that leave, without a server or a model."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from manual_clock import ManualClock
from waiting import give_way

from ox.errors import ServeError
from ox.graph.contract import TensorInfo
from ox.serve.batching.admission import PURGE_S, Budget, QueueAdmission
from ox.serve.batching.batcher import Batcher
from ox.serve.batching.job import Job
from ox.serve.batching.sequence_config import Control, SequenceBatching, State
from ox.serve.batching.sequence_tensors import SequenceTensors
from ox.serve.batching.sequences import Sequences
from ox.serve.protocol.v2.request import Request
from ox.serve.response_memory import ResponseMemory

BROKEN = 1000
CONFIG = SequenceBatching((Control("start", "START"),), (State("sum", "sum_out"),))
INPUTS = tuple(TensorInfo(name, "INT32", ("batch", 1)) for name in ("x", "START", "sum"))
OUTPUTS = tuple(TensorInfo(name, "INT32", ("batch", 1)) for name in ("sum_out", "y"))


class Note(Job):
    """A request of a sequence that notes its outcome."""

    __slots__ = ("answered", "answers", "order", "then")

    def __init__(self, bench: Bench, value: int, identifier: Any, start: bool, end: bool, timeout: int) -> None:
        parameters = {"sequence_id": identifier, "sequence_start": start, "sequence_end": end, "timeout": timeout}
        super().__init__(Request(None, {"x": np.array([[value]], np.int32)}, 1, (), (), parameters), bench.clock.now())
        self.answers, self.order, self.answered = 0, bench.order, asyncio.Event()
        self.then: Callable[[], None] | None = None

    def done(self) -> None:
        self.answers += 1
        self.order.append(self)
        self.answered.set()
        if self.then is not None:
            self.then()

    @property
    def outcome(self) -> int | str | None:
        """The sum, or the words of the error; None before there is one."""
        if self.error is not None:
            return self.error.what
        return int(self.outputs[0][0, 0]) if self.answers else None


class Accumulator:
    """An instance that adds up, when its gate is open; a value of 1000 breaks its batch."""

    def __init__(self) -> None:
        self.gathered_at = 0.0
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()
        self.batches: list[int] = []

    def __call__(self, feeds: Sequence[dict[str, Any]], control: Any) -> list[Any]:
        self.entered.set()
        assert self.gate.wait(120)
        feed = {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}
        if (feed["x"] == BROKEN).any():
            raise ServeError("the model cannot run on this input")
        self.batches.append(len(feeds))
        total = feed["x"] + (1 - feed["START"]) * feed["sum"]
        return [total, total]

    def control(self) -> Any:
        return SimpleNamespace(terminate=False)


class Bench:
    """Sequences over accumulators; on the running loop."""

    def __init__(
        self, clock: ManualClock, instances: int = 1, states: int = 1 << 20, here: bool = False, **options: Any
    ) -> None:
        self.clock = clock
        self.instances = [Accumulator() for _ in range(instances)]
        self.budget = Budget(1 << 20, states, ResponseMemory(1 << 20, clock))
        self.batcher = Batcher(
            self.instances,
            admission=QueueAdmission(max_queue=1 << 20, deadline_s=10),
            max_rows=8,
            observe=lambda rows, run_s, gather_s: None,
            clock=clock,
        )
        self.batcher.start(asyncio.get_running_loop())
        tensors = SequenceTensors("sums", CONFIG, INPUTS, OUTPUTS, set(), {})
        submit = self.batcher.submit_inline if here else self.batcher.submit
        settings = {"slots": 100, "idle_s": 20.0, "max_queue": 1000, "deadline_s": 10.0, **options}
        self.sequences = Sequences("sums", tensors, self.batcher, submit, budget=self.budget, **settings)
        self.order: list[Note] = []

    def ask(self, value: int, identifier: Any, how: str = "", timeout: int = 0) -> Note:
        """Submits a request; `how` may hold "start" and "end", the timeout is in microseconds."""
        job = Note(self, value, identifier, "start" in how, "end" in how, timeout)
        self.sequences.submit(job)
        return job

    async def settled(self, *jobs: Note) -> list[Any]:
        for job in jobs:
            if not job.abandoned:
                await job.answered.wait()
        return [job.outcome for job in jobs]

    async def emptied(self) -> bool:
        """Whether nothing is held once all that runs is over: what was answered last is let go of behind its answer."""
        self.batcher.finish()
        for thread in self.batcher._threads:
            await asyncio.to_thread(thread.join, 120)
        await give_way(2)
        return self.empty

    @property
    def empty(self) -> bool:
        sequences = self.sequences
        held = self.budget.held, self.budget.states_bytes
        return not (len(sequences) or sequences.waiting or sequences._running or sequences._backlog or any(held))


@pytest.fixture
def run() -> Callable[..., Any]:
    """Runs a coroutine function with a bench of its own."""

    def call(body: Callable[[Bench], Any], **options: Any) -> Any:
        clock = ManualClock()

        async def main() -> Any:
            bench = Bench(clock, **options)
            try:
                return await body(bench)
            finally:
                for instance in bench.instances:
                    instance.gate.set()
                bench.sequences.close()
                bench.batcher.close()

        return clock.run(main())

    return call


@pytest.fixture(params=[False, True], ids=["in threads", "on the loop"])
def here(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_order_and_states(run: Any, here: bool) -> None:
    async def body(bench: Bench) -> None:
        first = [bench.ask(1, "a", "start"), bench.ask(2, "a"), bench.ask(3, "a", "end")]
        other = [bench.ask(10, "b", "start"), bench.ask(20, "b", "end")]
        assert await bench.settled(*first, *other) == [1, 3, 6, 10, 30]
        assert [job for job in bench.order if job in first] == first
        assert await bench.emptied()

    run(body, here=here)


def test_a_batch_holds_one_request_of_each(run: Any) -> None:
    async def body(bench: Bench) -> None:
        gate = bench.instances[0].gate
        gate.clear()
        first = bench.ask(0, 0.5, "start")
        await asyncio.to_thread(bench.instances[0].entered.wait, 20)
        jobs = [bench.ask(step, name, "" if step else "start") for step in range(3) for name in "abcde"]
        assert bench.batcher.depth == 5 and bench.sequences.waiting == 10
        gate.set()
        assert await bench.settled(first, *jobs) == [0] + [0] * 5 + [1] * 5 + [3] * 5
        assert bench.instances[0].batches == [1, 5, 5, 5]

    run(body)


def test_a_failure_between_others(run: Any, here: bool) -> None:
    async def body(bench: Bench) -> None:
        jobs = [bench.ask(1, 1, "start"), bench.ask(BROKEN, 1), bench.ask(2, 1), bench.ask(BROKEN, 1, "end")]
        jobs.append(bench.ask(3, 1, "end"))
        broken = "the model cannot run on this input"
        assert await bench.settled(*jobs) == [1, broken, 3, broken, 6]
        jobs = [bench.ask(1, 1, "start"), bench.ask(BROKEN, 1, "start"), bench.ask(2, 1), bench.ask(5, 1, "start end")]
        one, error, refused, five = await bench.settled(*jobs)
        assert (one, error, five) == (1, broken, 5) and "must specify the START flag" in refused
        assert await bench.emptied()

    run(body, here=here)


def test_submit_answers_nothing_itself(run: Any) -> None:
    """Its caller notes only afterwards what to do when the client leaves."""

    async def body(bench: Bench) -> None:
        bench.instances[0].gate.clear()
        broken, ended = bench.ask(BROKEN, 1, "start"), bench.ask(1, 2, "start end")
        refused = [bench.ask(2, 1), bench.ask(2, 2)]
        first: list[Note] = []

        def late() -> None:  # between the answer and what follows from it
            first.append(bench.ask(3, 2))
            assert not first[0].answers
            first[0].abandon()

        ended.then = late
        bench.instances[0].gate.set()
        outcomes = await bench.settled(broken, ended, *refused)
        assert outcomes[1] == 1 and all("START flag" in outcome for outcome in outcomes[2:])
        assert first[0].abandoned and not first[0].answers
        assert await bench.emptied()

    run(body)


def test_what_follows_an_end(run: Any) -> None:
    async def body(bench: Bench) -> None:
        jobs = [bench.ask(1, 1, "start end"), bench.ask(2, 1), bench.ask(3, 1, "start"), bench.ask(4, 1, "end")]
        one, refused, three, seven = await bench.settled(*jobs)
        assert (one, three, seven) == (1, 3, 7) and "must specify the START flag" in refused
        with pytest.raises(ServeError, match="START flag") as caught:
            bench.ask(1, 1)
        assert caught.value.hint == "sequence_start on this request"
        assert caught.value.expected is not None and "after 20 s without a request" in caught.value.expected
        assert await bench.emptied()

    run(body)


def test_clients_that_leave(run: Any) -> None:
    """While they wait or while they run: the state is what it was."""

    async def body(bench: Bench) -> None:
        gate, entered = bench.instances[0].gate, bench.instances[0].entered
        first = bench.ask(1, 1, "start")
        await bench.settled(first)
        gate.clear()
        entered.clear()
        jobs = [bench.ask(10, 1), bench.ask(100, 1), bench.ask(2, 1)]
        await asyncio.to_thread(entered.wait, 20)
        jobs[0].abandon()  # it runs
        jobs[1].abandon()
        gate.set()
        assert await bench.settled(*jobs) == [None, None, 3]
        gate.clear()
        entered.clear()
        busy = bench.ask(1, 2, "start")
        await asyncio.to_thread(entered.wait, 20)
        restart, after = bench.ask(50, 1, "start"), bench.ask(5, 1)
        restart.abandon()
        gate.set()
        assert await bench.settled(busy) == [1]
        (refused,) = await bench.settled(after)
        assert "must specify the START flag" in refused  # rather than going on with what was before the restart
        await bench.settled(bench.ask(1, 2, "end"))
        assert await bench.emptied()

    run(body)


def test_a_timeout_is_cut_to_the_limit(run: Any) -> None:
    """Of one that waits for a slot, too: it has not come to the batcher yet."""

    async def body(bench: Bench) -> None:
        bench.ask(1, 1, "start")
        job = bench.ask(1, 2, "start", timeout=60_000_000)
        bench.clock.advance(0.1)
        outcome = (await bench.settled(job))[0]
        assert "took too long" in outcome

    run(body, slots=1, deadline_s=0.05, timeout_s=0.1)


def test_deadlines(run: Any) -> None:
    """Of one that runs, one in the batcher's queue and those behind it."""

    async def body(bench: Bench) -> None:
        gate, entered = bench.instances[0].gate, bench.instances[0].entered
        gate.clear()
        running = bench.ask(1, 1, "start", timeout=50_000)
        await asyncio.to_thread(entered.wait, 20)
        late = [bench.ask(2, 1, timeout=60_000), bench.ask(3, 2, "start", timeout=60_000), bench.ask(4, 2)]
        fine = bench.ask(5, 3, "start end")
        bench.clock.advance(0.06)
        assert all("took too long" in outcome for outcome in await bench.settled(running, *late[:2]))
        gate.set()
        assert await bench.settled(fine) == [5]
        assert "START flag" in (await bench.settled(late[2]))[0]
        assert bench.batcher.stats.late == 3
        assert await bench.emptied()  # what ran for too long comes back

    run(body)


def test_slots(run: Any) -> None:
    """A sequence without a slot waits for one; those behind it in the backlog follow in order."""

    async def body(bench: Bench) -> None:
        a, b = bench.ask(1, "a", "start"), bench.ask(1, "b", "start")
        assert await bench.settled(a, b) == [1, 1]
        c = [bench.ask(1, "c", "start"), bench.ask(2, "c", "end")]
        gone, late = bench.ask(1, "d", "start"), bench.ask(1, "e", "start", timeout=20_000)
        follower = bench.ask(2, "e")
        f = bench.ask(7, "f", "start")
        assert bench.sequences.waiting == 6 and bench.budget.held == 24
        gone.abandon()
        bench.clock.advance(0.02)
        assert "took too long" in (await bench.settled(late))[0]
        assert "START flag" in (await bench.settled(follower))[0]
        assert bench.sequences.waiting == 4  # c, c, f, and d until its turn
        assert await bench.settled(bench.ask(1, "b")) == [2]
        assert not c[0].answers
        assert await bench.settled(bench.ask(1, "b", "end"), *c, f) == [3, 1, 3, 7]
        assert len(bench.sequences) == 2

    run(body, slots=2)


def test_a_thousand_that_left_the_backlog(run: Any) -> None:
    async def body(bench: Bench) -> None:
        first = bench.ask(1, "first", "start")
        crowd = [bench.ask(1, number + 1, "start") for number in range(2000)]
        for job in crowd:
            job.abandon()
        assert await bench.settled(first, bench.ask(1, "first", "end")) == [1, 2]
        assert await bench.emptied()

    run(body, slots=1, max_queue=5000)


def test_idle_sequences_end(run: Any) -> None:
    async def body(bench: Bench) -> None:
        await bench.settled(*[bench.ask(1, number + 1, "start") for number in range(5)])
        waiting = bench.ask(9, "next", "start")  # for one of five slots
        bench.clock.advance(0.05)
        assert await bench.settled(waiting) == [9] and len(bench.sequences) < 6
        bench.clock.advance(0.05)
        await give_way(2)
        assert bench.empty
        assert await bench.settled(bench.ask(1, 1, "start")) == [1]

    run(body, slots=5, idle_s=0.05)


def test_a_sequence_that_is_busy_is_not_idle(run: Any) -> None:
    async def body(bench: Bench) -> None:
        await bench.settled(bench.ask(1, 1, "start"))
        bench.instances[0].gate.clear()
        slow = bench.ask(2, 1)
        for _ in range(3):
            bench.clock.advance(0.05)
            await give_way(2)
        bench.instances[0].gate.set()
        assert await bench.settled(slow) == [3]

    run(body, idle_s=0.05)


def test_too_much_waits(run: Any) -> None:
    async def body(bench: Bench) -> None:
        bench.instances[0].gate.clear()
        running = bench.ask(1, 1, "start")
        await asyncio.to_thread(bench.instances[0].entered.wait, 20)
        jobs = [bench.ask(1, 1), bench.ask(1, 2, "start"), bench.ask(1, 3, "start")]
        with pytest.raises(ServeError, match="busy") as caught:
            bench.ask(1, 4, "start")
        assert caught.value.status == 503 and caught.value.retry_after and len(bench.sequences) == 3
        jobs[0].abandon()
        bench.clock.advance(2 * PURGE_S)
        last = bench.ask(1, 1)
        bench.instances[0].gate.set()
        assert await bench.settled(running, *jobs, last) == [1, None, 1, 1, 2]
        assert bench.batcher.stats.refused == 1

    run(body, max_queue=3)


def test_bytes_of_states(run: Any) -> None:
    async def body(bench: Bench) -> None:
        jobs = [bench.ask(1, number + 1, "start") for number in range(3)]
        outcomes = await bench.settled(*jobs)
        assert outcomes.count(1) == 2 and outcomes.count("the server is busy") == 1
        assert len(bench.sequences) == 2 and bench.budget.states_bytes == 8

    run(body, states=8)


def test_draining(run: Any) -> None:
    """What was accepted is answered, also in the backlog, and then nothing is left."""

    async def body(bench: Bench) -> None:
        assert await bench.settled(bench.ask(1, "idle", "start")) == [1]
        bench.instances[0].gate.clear()
        jobs = [bench.ask(1, "a", "start"), bench.ask(2, "a"), bench.ask(3, "b", "start"), bench.ask(4, "b")]
        draining = asyncio.ensure_future(bench.sequences.drain())
        await give_way()
        assert not draining.done()
        bench.instances[0].gate.set()
        await draining
        assert await bench.settled(*jobs) == [1, 3, 3, 7]
        assert await bench.emptied() and not bench.budget.queues and not bench.budget.states
        await bench.sequences.drain()

    run(body, slots=2)


def test_nobody_waits_for_a_whole_sequence(run: Any) -> None:
    """Where the event loop itself runs the model, it does something else between two requests of a sequence."""

    async def body(bench: Bench) -> None:
        jobs = [bench.ask(1, 1, "" if step else "start") for step in range(50)]
        turns = 0
        while not jobs[-1].answers:
            await give_way()
            turns += 1
        assert turns >= 50 and await bench.settled(*jobs) == list(range(1, 51))

    run(body, here=True)


def test_an_answer_that_brings_the_next_request(run: Any) -> None:
    """A stream reads on when an answer is written, in the middle of things."""

    async def body(bench: Bench) -> None:
        last: list[Note] = []
        first, refused = bench.ask(1, 1, "start end"), bench.ask(2, 1)
        refused.then = lambda: last.append(bench.ask(3, 1, "start end"))
        await bench.settled(first, refused)
        assert await bench.settled(*last) == [3] and await bench.emptied()

    run(body)


def test_an_answer_that_brings_the_next_request_into_a_full_queue(run: Any) -> None:
    """Many deadlines pass together; each answer has its client send the next request, for which room is looked for."""

    async def body(bench: Bench) -> None:
        gate, entered = bench.instances[0].gate, bench.instances[0].entered
        gate.clear()
        running = bench.ask(1, "busy", "start")
        await asyncio.to_thread(entered.wait, 20)
        refused = 0

        def another() -> None:
            nonlocal refused
            try:
                bench.ask(1, "busy")
            except ServeError:
                refused += 1

        jobs = [bench.ask(1, "busy", "start" if step % 3 == 0 else "", timeout=30_000) for step in range(25)]
        jobs += [bench.ask(1, step + 1, "start", timeout=30_000) for step in range(24)]
        for job in jobs:
            job.then = another
        bench.clock.advance(0.05)  # all of them are late at once
        await bench.settled(*jobs)
        assert [job.answers for job in jobs] == [1] * len(jobs)
        assert bench.batcher.stats.late == len(jobs)
        gate.set()
        assert await bench.settled(running) == [1]

    run(body, slots=1, max_queue=50)


def test_a_late_start_is_not_run(run: Any) -> None:
    """Nor one whose turn comes while those that were late with it are answered."""

    async def body(bench: Bench) -> None:
        gate, entered = bench.instances[0].gate, bench.instances[0].entered
        gate.clear()
        running = bench.ask(1, "a", "start")
        await asyncio.to_thread(entered.wait, 20)
        first, second = bench.ask(2, "a"), bench.ask(3, "a", "start")
        last: list[Note] = []
        running.then = lambda: bench.sequences._overdue(bench.clock.now() + 60)  # before the next one's turn
        first.then = lambda: last.append(bench.ask(4, "a"))
        gate.set()
        await bench.settled(running, first, second)
        assert "START flag" in (await bench.settled(*last))[0]
        assert [first.answers, second.answers] == [1, 1]
        assert bench.instances[0].batches == [1] and await bench.emptied()

    run(body)


def test_a_request_whose_sequence_ends_while_room_is_looked_for(run: Any) -> None:
    """The start has been abandoned in the backlog, the queue is full: what follows it is refused, not forgotten."""

    async def body(bench: Bench) -> None:
        bench.instances[0].gate.clear()
        running = bench.ask(1, "a", "start")
        await asyncio.to_thread(bench.instances[0].entered.wait, 20)
        start = bench.ask(1, "b", "start")
        start.abandon()
        bench.clock.advance(2 * PURGE_S)
        with pytest.raises(ServeError, match="START flag"):
            bench.ask(2, "b")
        assert bench.sequences.waiting == 0
        bench.instances[0].gate.set()
        assert await bench.settled(running, bench.ask(1, "a", "end")) == [1, 2]
        assert await bench.emptied()

    run(body, slots=1, max_queue=1)


def test_deadlines_do_not_look_at_idle_sequences(run: Any) -> None:
    """However many they are: clients choose how often a deadline passes."""

    async def body(bench: Bench) -> None:
        await bench.settled(*[bench.ask(1, number + 1, "start") for number in range(50)])
        await give_way()  # what follows from these answers
        looked: list[Any] = []
        advance = bench.sequences._advance
        bench.sequences._advance = lambda sequence: (looked.append(sequence.id), advance(sequence))[0]  # type: ignore[method-assign]
        bench.instances[0].gate.clear()
        bench.instances[0].entered.clear()
        busy = bench.ask(1, 1)
        await asyncio.to_thread(bench.instances[0].entered.wait, 20)
        late = [bench.ask(1, 1, timeout=5000 * step) for step in range(1, 9)]
        for job in late:
            bench.clock.advance(0.005)
            await bench.settled(job)
        assert set(looked) == {1}
        bench.instances[0].gate.set()
        assert await bench.settled(busy) == [2]

    run(body)


def test_idle_sequences_end_while_deadlines_pass(run: Any) -> None:
    """A client with short timeouts does not keep the sequences of others."""

    async def body(bench: Bench) -> None:
        await bench.settled(*[bench.ask(1, name, "start") for name in ("idle", "busy")])
        sequences = bench.sequences
        ends = sequences._idle[sequences._sequences["idle"]]
        bench.instances[0].gate.clear()
        jobs = [bench.ask(1, "busy"), bench.ask(1, "busy", timeout=3000)]
        bench.clock.advance(0.003)
        await bench.settled(jobs[1])
        assert sequences._idle[sequences._sequences["idle"]] == ends
        bench.instances[0].gate.set()
        await bench.settled(jobs[0])

    run(body)


def test_a_full_queue_is_looked_through_only_so_often(run: Any) -> None:
    """Clients choose how often they are refused."""

    async def body(bench: Bench) -> None:
        bench.instances[0].gate.clear()
        running = bench.ask(1, 1, "start")
        await asyncio.to_thread(bench.instances[0].entered.wait, 20)
        jobs = [bench.ask(1, 1) for _ in range(3)]
        looks = 0
        purge = bench.sequences._purge

        def counted() -> None:
            nonlocal looks
            looks += 1
            purge()

        bench.sequences._purge = counted  # type: ignore[method-assign]
        for step in range(200):
            with pytest.raises(ServeError, match="busy"):
                bench.ask(1, 1)
            assert looks == 1 + step // 50
            bench.clock.advance(PURGE_S / 50 + 1e-9)
        bench.instances[0].gate.set()
        assert await bench.settled(running, *jobs) == [1, 2, 3, 4]

    run(body, max_queue=3)


def test_without_an_id(run: Any) -> None:
    async def body(bench: Bench) -> None:
        for nothing in (0, ""):
            with pytest.raises(ServeError, match="correlation ID"):
                bench.ask(1, nothing, "start")
        assert await bench.emptied()

    run(body)


@pytest.mark.parametrize("seed", range(10))
def test_anything_in_any_order(run: Any, seed: int, here: bool) -> None:
    """Many sequences at once, some of whose requests fail: every sum is what a plain loop gives."""
    dice = random.Random(seed)

    async def body(bench: Bench) -> None:
        sums: dict[int, int | None] = {}
        expected: list[int | str] = []
        jobs: list[Note] = []
        for _ in range(400):
            name, value = dice.randrange(1, 13), dice.choice([1, 2, 3, 4, BROKEN])
            how = dice.choice(["", "", "", "", "start", "end", "start end"])
            before = sums.get(name)
            if name not in sums and "start" not in how:
                continue  # it may be known or not by now
            jobs.append(bench.ask(value, name, how))
            total = value if "start" in how else None if before is None else before + value
            if total is None:
                expected.append("START")
            elif value == BROKEN:
                expected.append("cannot run")
                sums[name] = None if "start" in how else before
            else:
                expected.append(total)
                sums[name] = None if "end" in how else total
            if sums[name] is None:  # the next begins, so that nothing hangs on when it is asked
                await bench.settled(jobs[-1])
                del sums[name]
            if dice.random() < 0.1:
                await give_way()
        for outcome, right in zip(await bench.settled(*jobs), expected, strict=True):
            assert right in outcome if isinstance(right, str) else outcome == right
        assert all(job.answers == 1 for job in jobs)
        for name, total in sums.items():
            assert total is not None and await bench.settled(bench.ask(1, name, "end")) == [total + 1]
        assert await bench.emptied()

    run(body, instances=2, here=here, slots=dice.choice([12, 100]), max_queue=10_000)
