"""Requests of sequences: one of each at a time, in order, with what the model keeps between them.

Only the first request of a sequence is in the batcher's queue; the next one follows when it is back. So a batch holds
at most one request of each sequence, and those of different sequences run together. All of it happens on the event
loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import NamedTuple

from ox.errors import ServeError
from ox.serve.batching.admission import PURGE_S, Budget
from ox.serve.batching.batcher import Batcher
from ox.serve.batching.deadline_heap import DeadlineHeap
from ox.serve.batching.deadlines import Deadlines
from ox.serve.batching.job import Job
from ox.serve.batching.sequence_tensors import SequenceTensors, States
from ox.serve.response_memory import memory_of

log = logging.getLogger("ox.serve")

RETRY_S = 1.0


class Sequence:
    """One sequence; `states` is what its next request is run with, None before its first has succeeded."""

    __slots__ = ("active", "id", "running", "states", "waiting")

    def __init__(self, identifier: int | str) -> None:
        self.id = identifier
        self.waiting: OrderedDict[int, Waiting] = OrderedDict()  # by number; the next one is first
        self.running: Job | None = None
        self.states: States | None = None
        self.active = False  # has a slot


class Waiting(NamedTuple):
    """A request that waits for its turn."""

    sequence: Sequence
    job: Job
    size: int  # bytes

    @property
    def start(self) -> bool:
        return bool(self.job.request.parameters.get("sequence_start", False))

    @property
    def gone(self) -> bool:
        """Whether it was given up: its client has left, or it is too late for it."""
        return self.job.abandoned or self.job.error is not None


class ByteCount:
    """Bytes that count in a budget."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class Sequences:
    """The sequences of one model.

    Args:
        model: its name, for errors.
        tensors: its controls and states.
        batcher: runs the requests; it has `returned` called with those that it is done with.
        run: hands one to the batcher.
        slots: how many sequences there are at once; the requests of more wait until one ends.
        idle_s: a sequence ends after so long without a request.
        max_queue: the most requests that wait, in the batcher's queue or here.
        deadline_s: the time limit of a request without its own limit.
        timeout_s: how long one may take that does; more is cut to that, but never below `deadline_s`.
        budget: bytes of requests and of states that all models of a server share.
    """

    def __init__(
        self,
        model: str,
        tensors: SequenceTensors,
        batcher: Batcher,
        run: Callable[[Job], None],
        *,
        slots: int,
        idle_s: float,
        max_queue: int,
        deadline_s: float,
        timeout_s: float = 60.0,
        budget: Budget,
    ) -> None:
        self._now = batcher.clock.now
        self._model, self._tensors, self._batcher, self._run = model, tensors, batcher, run
        self._free, self._idle_s = slots, idle_s
        self._max_queue, self._deadline_s, self._timeout_s = max_queue, deadline_s, max(deadline_s, timeout_s)
        self._budget = budget
        self._sequences: dict[int | str, Sequence] = {}
        self._backlog: dict[Sequence, None] = {}  # those without a slot, in order
        self._idle: dict[Sequence, float] = {}  # those without a request, and when they end; the first ends first
        self._running: dict[Job, Sequence] = {}
        self._waiting: DeadlineHeap[Waiting] = DeadlineHeap()
        self._requests, self._states = ByteCount(), ByteCount()
        self.waiting = 0
        self._purged_at = 0.0
        self._promoting = self._draining = False
        self._deadlines: Deadlines | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None
        batcher.returned = self.returned

    @property
    def id_dtype(self) -> str | None:
        """See `SequenceTensors`."""
        return self._tensors.id_dtype

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def states_size(self) -> int:
        """Bytes of all states."""
        return self._states.size

    def submit(self, job: Job) -> None:
        """Queues a request behind those of its sequence.

        Raises:
            ServeError: it belongs to no sequence, or too much waits already (503).
        """
        parameters = job.request.parameters
        identifier = parameters.get("sequence_id", 0)
        if not identifier:
            what = f"inference request to model '{self._model}' must specify a non-zero or non-empty correlation ID"
            raise ServeError(what, hint="the parameter sequence_id")
        self._tensors.check(identifier, job.request.rows)
        size = memory_of(job.request.feed.values())
        self._admit(size, job.arrived)
        sequence = self._sequences.get(identifier)  # only now: making room may end it
        if sequence is None and not parameters.get("sequence_start", False):
            raise self._unknown(identifier)
        if self._deadlines is None:
            self._open()
        job.request.rows = 1  # independent of its first dimension
        deadline = job.limit(self._deadline_s, self._timeout_s)
        if sequence is None:
            sequence = self._sequences[identifier] = Sequence(identifier)
            self._backlog[sequence] = None
        self._idle.pop(sequence, None)
        waiting = Waiting(sequence, job, size)
        sequence.waiting[self._waiting.push(deadline, waiting)] = waiting
        self._count(1, size)
        assert self._deadlines is not None
        self._deadlines.watch(job.deadline)
        self._advance(sequence)
        self._promote()

    def returned(self, jobs: Many[Job]) -> None:
        """The batcher is done with these, which are not answered yet: they succeeded, failed or were given up."""
        touched = []
        for job in jobs:
            sequence = self._running.pop(job, None)
            if sequence is None:
                continue
            sequence.running = None
            if isinstance(job.error, ServeError) and job.error.status == 400:
                job.error = self._tensors.describe(job.error, sequence.states)
            elif job.error is None and not job.abandoned:
                self._succeeded(sequence, job)
            touched.append(sequence)
        if touched:  # not at once: where the loop itself runs them, everybody would wait for all that follow
            self._loop.call_soon(self._go_on, touched)

    async def drain(self) -> None:
        """Runs what was accepted, ends every sequence as soon as it has no more, then closes."""
        self._draining = True
        for sequence in list(self._idle):
            self._remove(sequence)
        self._promote()
        if self._sequences:
            self._empty = asyncio.get_running_loop().create_future()
            await self._empty
        self.close()

    def close(self) -> None:
        """Ends all timers, and lets go of all states."""
        self._batcher.returned = None
        if self._expiry is not None:
            self._expiry.cancel()
        if self._deadlines is not None:
            self._deadlines.close()
            self._budget.queues.remove(self._requests)
            self._budget.states.remove(self._states)
            self._deadlines = None
        self._sequences.clear()
        self._waiting.clear()
        self._idle.clear()

    # ---- what waits

    def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop, self._overdue, self._batcher.clock)
        self._budget.queues.append(self._requests)
        self._budget.states.append(self._states)

    def _admit(self, size: int, now: float) -> None:
        """Whether there is room for a request of so many bytes."""
        budget = self._budget
        full = self.waiting + self._batcher.depth >= self._max_queue or budget.held + size > budget.limit
        # not for every request: clients choose how often they are refused
        if full and now - self._purged_at >= PURGE_S:
            self._purged_at = now
            self._purge()
        waiting = self.waiting + self._batcher.depth
        if waiting >= self._max_queue:
            raise self._busy(f"{waiting} requests of sequences wait already", f"at most {self._max_queue}")
        if budget.held + size > budget.limit:
            expected = f"at most {budget.limit}, of all models together (--limit buffered)"
            raise self._busy(f"{budget.held} bytes wait already", expected)

    def _busy(self, got: str, expected: str) -> ServeError:
        self._batcher.stats.refused += 1
        return ServeError(
            "the server is busy", status=503, expected=expected, got=got, hint="again in a moment", retry_after=RETRY_S
        )

    def _unknown(self, identifier: int | str) -> ServeError:
        what = (
            f"inference request for sequence {identifier} to model '{self._model}' must specify the START flag on the "
            "first request of the sequence"
        )
        ends = f"with sequence_end, after {self._idle_s:g} s without a request, and when its model is loaded again"
        expected = f"a started sequence that has not ended (it ends {ends})"
        return ServeError(what, expected=expected, hint="sequence_start on this request")

    def _count(self, sign: int, size: int) -> None:
        self.waiting += sign
        self._requests.size += sign * size

    def _overdue(self, now: float) -> float | None:
        """Answers what is past its deadline; the next deadline."""
        due = self._waiting.pop_due(now)
        self._remove_waiting(due)
        self._batcher.drop([waiting.job for _, waiting in due])
        self._go_on([waiting.sequence for _, waiting in due])
        return self._waiting.first()

    def _purge(self) -> None:
        """Takes out the requests whose clients have left."""
        gone = [(number, waiting) for number, waiting in self._waiting if waiting.gone]
        self._remove_waiting(gone)
        self._go_on([waiting.sequence for _, waiting in gone])

    def _remove_waiting(self, requests: Many[tuple[int, Waiting]]) -> None:
        """Except a start: it still ends what was before it, when its turn comes."""
        for number, waiting in requests:
            if not waiting.start:
                del waiting.sequence.waiting[number]
                self._waiting.remove(number)
                self._count(-1, waiting.size)

    # ---- a sequence and its next request

    def _go_on(self, sequences: Many[Sequence]) -> None:
        for sequence in sequences:
            self._advance(sequence)
        self._promote()

    def _advance(self, sequence: Sequence) -> None:
        """Hands the next request on, if it is its turn."""
        while sequence.running is None and sequence.waiting:
            first = next(iter(sequence.waiting.values()))
            job = first.job
            if not (first.gone or first.start or sequence.states is not None):
                self._take(sequence)
                self._refuse(job, self._unknown(sequence.id))
            elif first.gone:
                self._take(sequence)
                if first.start:
                    self._keep(sequence, None)
            elif sequence.active:
                self._take(sequence)
                self._call_on_loop(sequence, job, first.start)
            else:
                return
        if sequence.running is None and not sequence.waiting and self._sequences.get(sequence.id) is sequence:
            if sequence.states is None or self._draining:
                self._remove(sequence)
            else:
                self._wait_idle(sequence)

    def _take(self, sequence: Sequence) -> None:
        number, waiting = sequence.waiting.popitem(last=False)
        self._waiting.remove(number)
        self._count(-1, waiting.size)

    def _call_on_loop(self, sequence: Sequence, job: Job, start: bool) -> None:
        states = self._tensors.initial if start else sequence.states
        assert states is not None
        if start:
            self._keep(sequence, None)  # if it fails there is no sequence, rather than the one before
        try:
            self._tensors.check_states(states)
        except ServeError as error:
            self._refuse(job, error)
            return
        request = job.request
        end = bool(request.parameters.get("sequence_end", False))
        request.key = (request.key, self._tensors.fill(request.feed, sequence.id, start, end, states))
        try:
            self._run(job)
        except ServeError as error:
            self._refuse(job, error)
            return
        sequence.running = job
        self._running[job] = sequence

    def _succeeded(self, sequence: Sequence, job: Job) -> None:
        """Keeps the states and leaves the job what its client sees."""
        outputs, states = job.outputs, None
        if not job.request.parameters.get("sequence_end", False):
            states = self._tensors.states_of(outputs)
            before = 0 if sequence.states is None else memory_of(sequence.states)
            limit = self._budget.states_limit
            if self._budget.states_bytes - before + memory_of(states) > limit:
                got = f"{self._budget.states_bytes} bytes of states"
                job.error = self._busy(got, f"at most {limit}, of all models together (--limit states)")
                return
        self._keep(sequence, states)
        job.outputs = self._tensors.visible_outputs(outputs)

    def _keep(self, sequence: Sequence, states: States | None) -> None:
        self._states.size -= 0 if sequence.states is None else memory_of(sequence.states)
        self._states.size += 0 if states is None else memory_of(states)
        sequence.states = states

    def _refuse(self, job: Job, error: ServeError) -> None:
        """Answers it with an error: after `submit`, when its caller has stored the job."""
        job.error = error
        self._loop.call_soon(self._answer, job)

    def _answer(self, job: Job) -> None:
        if not job.abandoned:
            self._batcher.answer(job)

    # ---- slots, and sequences that end

    def _promote(self) -> None:
        """Gives free slots to those that wait for one."""
        if self._promoting:
            return
        self._promoting = True
        try:
            while self._free and self._backlog:
                sequence = next(iter(self._backlog))
                del self._backlog[sequence]
                self._free -= 1
                sequence.active = True
                self._advance(sequence)
        finally:
            self._promoting = False

    def _remove(self, sequence: Sequence) -> None:
        del self._sequences[sequence.id]
        self._idle.pop(sequence, None)
        self._keep(sequence, None)
        if sequence.active:
            self._free += 1
        else:
            del self._backlog[sequence]
        if self._empty is not None and not self._sequences and not self._empty.done():
            self._empty.set_result(None)

    def _wait_idle(self, sequence: Sequence) -> None:
        if sequence in self._idle:
            return
        self._idle[sequence] = self._now() + self._idle_s
        if self._expiry is None:
            self._expiry = self._loop.call_later(self._idle_s, self._expire)

    def _expire(self) -> None:
        now = self._now()
        self._expiry = None
        for sequence, ends in list(self._idle.items()):
            if ends > now:
                self._expiry = self._loop.call_later(ends - now, self._expire)
                break
            log.info("sequence %s of '%s' has ended: idle for %g s", sequence.id, self._model, self._idle_s)
            self._remove(sequence)
        self._promote()
