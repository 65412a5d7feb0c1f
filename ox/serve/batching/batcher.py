"""The batcher: a bounded queue from which idle worker threads pull the waiting jobs, up to a full batch.

Work-conserving: a batch does not wait to fill up unless `max_wait_s` is set. Pulling, because handing batches from the
event loop to an executor costs a sixth of the throughput. A model that runs in no time does not even get a thread: what
arrives in one turn of the event loop is run at the turn's end.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ox.clock import Clock
from ox.errors import OxError, ServeError
from ox.graph.contract import Array
from ox.serve.batching.admission import QueueAdmission
from ox.serve.batching.batch_stats import BatchStats
from ox.serve.batching.deadlines import Deadlines, late
from ox.serve.batching.fairness import Share
from ox.serve.batching.job import Job
from ox.serve.batching.padding import Padding
from ox.serve.batching.result_memory import Room, need_of_next, wait_for_room
from ox.serve.batching.result_size import ResultSize, keep
from ox.serve.batching.running_batch import Control, RunningBatch
from ox.serve.response_memory import LARGE, MemoryRequest, ResponseMemory, memory_of
from ox.serve.runtime.abandoned_threads import join_or_abandon
from ox.serve.runtime.instance import Feed

log = logging.getLogger("ox.serve")


class Instance(Protocol):
    """One thread's way into a model: runs the rows of several feeds as one batch.

    `gathered_at` is when the rows of the last batch had been put together.
    """

    gathered_at: float

    def __call__(self, feeds: Sequence[Feed], control: Control | None) -> list[Array]: ...

    def control(self) -> Control: ...


class Batcher:
    """Collects jobs and runs them in batches.

    Args:
        instances: each gets its own thread.
        inline: what runs the jobs of `submit_inline`, on the event loop.
        admission: what may wait, and in which order.
        max_rows: the most rows of a batch; a larger request runs alone.
        max_wait_s: how long an instance may wait for a batch to fill.
        observe: called on the event loop with the rows of every batch that succeeded, its seconds, and those before
            them in which it was put together.
        padding: how requests of several lengths share a batch.
        share: what the instances ask for cores that other models want, too.
        memory: what runs with large results wait for, and what counts these results.
        result_size: the estimate of their size.
        clock: of the jobs.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        *,
        inline: Instance | None = None,
        admission: QueueAdmission,
        max_rows: int,
        max_wait_s: float = 0.0,
        observe: Callable[[int, float, float], None],
        padding: Padding | None = None,
        share: Share | None = None,
        memory: ResponseMemory | None = None,
        result_size: ResultSize | None = None,
        clock: Clock,
    ) -> None:
        self.clock, self._now = clock, clock.now
        self.max_rows, self.max_wait_s = max_rows, max_wait_s
        self._memory, self._size = memory or ResponseMemory(1 << 62, clock), result_size or ResultSize(())
        self._instances, self._inline = instances, inline or instances[0]
        self._observe, self._padding, self._share = observe, padding, share
        self.fill_rows = max_rows  # so many are not waited for any longer
        self.returned: Callable[[Sequence[Job]], None] | None = None  # called with jobs before they are answered
        self.stats = BatchStats()
        self._admission, self._queue = admission, admission.queue
        self._turn: deque[Job] = deque()  # what this turn of the event loop brought
        self._ready = threading.Condition(threading.Lock())
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._running_batches: list[RunningBatch | None] = [None] * len(instances)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._admission.open()
        if self._share is not None:
            self._share.open()
        self._deadlines = Deadlines(loop, self._overdue, self.clock)
        for index in range(len(self._instances)):
            thread = threading.Thread(target=self._work, args=(index,), name=f"ox-instance-{index}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self) -> None:
        """Has the threads end once the queue is empty; deadlines are still held."""
        with self._ready:
            self._closing = True
            self._ready.notify_all()

    def join(self) -> None:
        """Waits for the threads."""
        for thread in self._threads:
            thread.join()

    def abort(self) -> None:
        """Stops running and waiting jobs without answers: the loop is closed."""
        with self._ready:
            self._queue.remove_stale(lambda _: True)
        self.finish()
        for running_batch in filter(None, self._running_batches):
            running_batch.control.terminate = True
        self._memory.wake_all()

    def close(self) -> None:
        """Ends the threads once the queue is empty. Called on the event loop, which waits a second for them at most."""
        self.finish()
        join_or_abandon(self._threads)
        self._deadlines.close()
        self._admission.close()
        if self._share is not None:
            self._share.close()

    @property
    def depth(self) -> int:
        """Jobs that wait."""
        return self._queue.jobs

    def submit(self, job: Job) -> None:
        """Queues a job; `job.done()` follows on the event loop unless it is abandoned. Called on the event loop.

        Raises:
            ServeError: the queue is full (503).
        """
        key = job.request.key if self._padding is None else self._padding.key(job.request.feed)
        try:
            with self._ready:
                self._admission.put(job, key)
                self._ready.notify()
        except ServeError:
            self.stats.refused += 1
            raise
        self._deadlines.watch(job.deadline)

    def submit_inline(self, job: Job) -> None:
        """Like `submit`, for a model so quick that the event loop's own thread runs it, at the end of this turn."""
        if not self._turn:
            self._loop.call_soon(self._run_inline)
        self._turn.append(job)

    def _run_inline(self) -> None:
        try:
            self._run_turn()
        finally:
            if self._turn:  # after a failure: the rest of the jobs must still run
                self._loop.call_soon(self._run_inline)

    def _run_turn(self) -> None:
        turn, max_rows = self._turn, self.max_rows
        while turn:
            batch: list[Job] = []
            rows, now = 0, self._now()
            while turn and rows < max_rows:
                job = turn[0]
                if batch and (rows + job.request.rows > max_rows or job.request.key != batch[0].request.key):
                    break
                turn.popleft()
                if job.abandoned or (job.deadline is not None and job.deadline <= now):
                    self.drop([job])
                else:
                    batch.append(job)
                    rows += job.request.rows
            if batch:
                if turn or rows >= max_rows:
                    self.stats.full += 1
                else:
                    self.stats.idle += 1
                self._serve(batch, self._inline, None)

    # ---- what takes too long, on the event loop

    def _overdue(self, now: float) -> float | None:
        """Answers what is past its deadline, waiting or running; the next deadline."""
        with self._ready:
            stale = self._queue.remove_stale(late(now))
            following = self._queue.earliest()
        self.drop(stale)
        for running_batch in self._running_batches:
            for job in () if running_batch is None else running_batch.jobs:
                if job.abandoned or job.running_batch is not running_batch or job.deadline is None:
                    continue
                if job.deadline <= now:
                    self._fail_late(job)
                    self._answer_late(job)
                elif following is None or job.deadline < following:
                    following = job.deadline
        return following

    def drop(self, jobs: list[Job]) -> None:
        """Jobs that are given up without having run: late, or their clients have left. On the event loop."""
        for job in jobs:
            if job.abandoned:
                self.stats.gone += 1
            else:
                self._fail_late(job)
        for job in jobs:  # only now: an answer may bring the client's next request, which finds them all given up
            if not job.abandoned:
                self._answer_late(job)
        if self.returned is not None:
            self.returned(jobs)

    def _fail_late(self, job: Job) -> None:
        self.stats.late += 1
        waited = f"{1000 * (self._now() - job.arrived):.0f} ms"
        where = "in the queue" if job.running_batch is None else "in the queue and the model"
        hint = f"again in a moment, or with a longer timeout, up to {self._admission.timeout_s:g} s (--limit timeout_s)"
        job.error = ServeError("the request took too long", status=504, got=f"{waited} {where}", hint=hint)

    def _answer_late(self, job: Job) -> None:
        self.answer(job)
        job.abandon_result()

    def answer(self, job: Job) -> None:
        """Has a job tell its outcome. On the event loop."""
        try:
            job.done()
        except Exception:  # a defect in one answer must not affect the others
            log.exception("an answer could not be given")

    # ---- from here on in the instances' threads

    def _work(self, index: int) -> None:
        instance, share = self._instances[index], self._share
        while reason := self._wait():
            room = None if self._queue.rows <= self._size.small_rows else wait_for_room(self._memory, self._need)
            # Before a batch is taken: while other models have the cores, it may still grow.
            shared = share is not None and share.acquire()
            started = self._now()
            try:
                self._next(index, instance, reason, room)
            finally:
                if share is not None and shared:
                    share.release(self._now() - started)

    def _wait(self) -> str:
        """Until something waits, or with `max_wait_s` a batch of it; why it may leave. "" when the batcher closes."""
        with self._ready:
            while not self._queue.jobs:
                if self._closing:
                    return ""
                self._ready.wait()
            return self._fill() if self.max_wait_s else "idle"

    def _fill(self) -> str:
        """Waits until a full batch is there, the oldest job has waited long enough, or its deadline comes near."""
        while True:
            group = self._queue.first()
            if group is None or self._closing or group.rows >= self.fill_rows:
                return "idle"
            job, now = group.heap[0].job, self._now()
            wait, reason = job.arrived + self.max_wait_s - now, "wait"
            if job.deadline is not None and job.deadline - self._admission.run_s - now < wait:
                wait, reason = job.deadline - self._admission.run_s - now, "deadline"
            if wait <= 0:
                return reason
            arrivals = self._queue.arrivals
            self.clock.wait(self._ready, lambda: self._closing or self._queue.arrivals > arrivals, wait)  # noqa: B023

    def _need(self) -> MemoryRequest | None:
        """The memory that the next batch's results take; None for a little."""
        with self._ready:
            need, stale = need_of_next(self._queue, self._size, self._memory, self.max_rows, self._now())
        if stale:
            self._call_on_loop(self.drop, stale)
        return need

    def _next(self, index: int, instance: Instance, reason: str, room: Room | None) -> None:
        """Runs the next batch, if another instance has not taken it."""
        control, running_batch = instance.control(), None
        max_rows, granted = (self.max_rows, 0) if room is None else (min(self.max_rows, room.rows), room.reserved_bytes)
        with self._ready:
            batch = self._queue.take(max_rows, late(self._now()))
            if batch.jobs:  # with the lock held: the deadline check finds them in the queue or in a running batch
                running_batch = self._running_batches[index] = RunningBatch(
                    batch.jobs, control, "full" if batch.full else reason
                )
        if batch.stale:
            self._call_on_loop(self.drop, batch.stale)
        if running_batch is not None:
            running_batch.reserved_bytes = granted
            self._serve(batch.jobs, instance, running_batch)
            self._running_batches[index] = None
            granted = running_batch.reserved_bytes
        if granted:  # the rest was reserved for the serialized results
            self._call_on_loop(self._memory.release, granted)

    def _serve(self, jobs: list[Job], instance: Instance, running_batch: RunningBatch | None) -> None:
        dequeued_at = instance.gathered_at = self._now()
        failed = False
        try:
            self._run(jobs, instance, running_batch)
        except Exception as error:
            if len(jobs) > 1 and not (running_batch is not None and running_batch.control.terminate):
                # Somebody's input broke the batch: halves, until only the culprits are alone with their error.
                if running_batch is None:
                    self.stats.split += 1
                else:
                    running_batch.split = True
                middle = len(jobs) // 2
                self._serve(jobs[:middle], instance, running_batch)
                self._serve(jobs[middle:], instance, running_batch)
                return
            if not isinstance(error, OxError):
                error = ServeError("the model failed", status=500, got=str(error))
            for job in jobs:
                job.error = job.error or error  # one that was late has its own
            failed = True
        started = instance.gathered_at
        run_s = self._now() - started
        for job in jobs:
            job.started, job.run_s = started, run_s
        if running_batch is None:
            self._deliver(jobs, started - dequeued_at, failed)
        else:
            self._call_on_loop(self._deliver, jobs, started - dequeued_at, failed)

    def _call_on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop has been closed: there is no client
            self._loop.call_soon_threadsafe(call, *arguments)

    def _run(self, jobs: list[Job], instance: Instance, running_batch: RunningBatch | None) -> None:
        control = None if running_batch is None else running_batch.control
        if self._padding is not None:
            feeds = [job.request.feed for job in jobs]
            batch = self._padding.gather(feeds)
            outputs = instance((batch,), control)
            for job, part in zip(jobs, self._padding.scatter(outputs, feeds), strict=True):
                job.outputs = part
            if running_batch is not None:
                running_batch.cells, running_batch.filled = self._padding.share(batch, feeds)
        elif len(jobs) == 1:
            outputs = jobs[0].outputs = instance((jobs[0].request.feed,), control)
        else:
            outputs = instance([job.request.feed for job in jobs], control)
            first = 0
            for job in jobs:
                end = first + job.request.rows
                job.outputs = [output[first:end] for output in outputs]
                first = end
            if any(len(output) != first for output in outputs):  # rows cannot be assigned to jobs: run each job alone
                raise ServeError("the model returned another batch size than its input", status=500)
        size = memory_of(outputs)
        if size >= LARGE or self._size.has_large_rows:
            keep(jobs, running_batch, self._size, self._memory)

    # ---- back on the event loop

    def _deliver(self, jobs: list[Job], gather_s: float, failed: bool) -> None:
        running_batch = jobs[0].running_batch
        if not failed:  # a failed or stopped run does not count for the mean run time
            rows, run_s = sum(job.request.rows for job in jobs), jobs[0].run_s
            self._observe(rows, run_s, gather_s)
            if running_batch is not None:
                self._admission.ran(rows, run_s)
        if running_batch is not None:
            self._record_run(running_batch)
        if self.returned is not None:
            self.returned(jobs)
        for job in jobs:
            job.running_batch = None
            if not job.abandoned:
                self.answer(job)
            if running_batch is not None and running_batch.large:  # other references to the job must not keep them
                job.outputs = ()

    def _record_run(self, running_batch: RunningBatch) -> None:
        """Counts a run; one that was split comes back in parts."""
        stats = self.stats
        if running_batch.reason:
            setattr(stats, running_batch.reason, getattr(stats, running_batch.reason) + 1)
            stats.cells += running_batch.cells
            stats.padding += running_batch.filled
            stats.split += running_batch.split
            running_batch.reason = ""
