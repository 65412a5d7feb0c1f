"""The batcher: a bounded queue from which worker threads pull whatever waits, up to a batch, whenever they are free.

Work-conserving: nobody waits for a batch to fill unless `max_wait_s` says so. Pulling, because handing batches from the
event loop to an executor costs a sixth of the throughput. A model that runs in no time does not even get a thread: what
arrives in one turn of the event loop is run at the turn's end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from ox.errors import OxError, ServeError
from ox.serve.batching.job import Job
from ox.serve.engine.session import Run

LOOK_AHEAD = 64  # jobs that are looked at for more of the same shape


class Batcher:
    """Collects jobs and runs them in batches.

    Args:
        runs: one callable an instance, each gets a thread of its own.
        max_rows: the most rows of a batch; a larger request runs alone.
        max_wait_s: how long an instance may wait for a batch to fill.
        deadline_s: how long a job may wait in the queue.
        max_queue: the most jobs in the queue.
        observe: called on the event loop with the rows and seconds of every batch that ran.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        max_rows: int,
        max_wait_s: float,
        deadline_s: float,
        max_queue: int,
        observe: Callable[[int, float], None],
    ) -> None:
        self.max_rows, self.max_wait_s, self.deadline_s, self.max_queue = max_rows, max_wait_s, deadline_s, max_queue
        self._runs, self._observe = runs, observe
        self._queue: deque[Job] = deque()
        self._turn: deque[Job] = deque()  # what this turn of the event loop brought
        self._ready = threading.Condition(threading.Lock())
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        for index, run in enumerate(self._runs):
            thread = threading.Thread(target=self._work, args=(run,), name=f"ox-instance-{index}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self) -> None:
        """Has the threads end once the queue is empty."""
        with self._ready:
            self._closing = True
            self._ready.notify_all()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the threads; those that are not done in time are left behind."""
        for thread in self._threads:
            thread.join(timeout)

    def close(self) -> None:
        """Ends the threads once the queue is empty. Called on the event loop, which waits a second for each at most."""
        self.finish()
        if self._timer is not None:
            self._timer.cancel()
        self.join(1.0)

    @property
    def depth(self) -> int:
        """Jobs that wait."""
        return len(self._queue)

    def submit(self, job: Job) -> None:
        """Queues a job; `job.done()` follows on the event loop. Called on the event loop.

        Raises:
            ServeError: the queue is full (503).
        """
        if len(self._queue) >= self.max_queue:
            got = f"{self.max_queue} requests wait already"
            raise ServeError("the server is busy", status=503, got=got, hint="again in a moment")
        with self._ready:
            self._queue.append(job)
            self._ready.notify()
        if self._timer is None:
            self._timer = self._loop.call_later(self.deadline_s, self._expire)

    def submit_here(self, job: Job) -> None:
        """Like `submit`, for a model so quick that the event loop's own thread runs it, at the end of this turn."""
        if not self._turn:
            self._loop.call_soon(self._run_here)
        self._turn.append(job)

    def _run_here(self) -> None:
        while batch := self._take(self._turn):
            self._serve(batch, self._runs[0], self._deliver)

    def _expire(self) -> None:
        """Answers what has waited too long, even while every instance is busy."""
        now, late = perf_counter(), []
        with self._ready:
            while self._queue and now - self._queue[0].arrived >= self.deadline_s:
                late.append(self._queue.popleft())
            wait = self._queue[0].arrived + self.deadline_s - now if self._queue else None
        self._timer = None if wait is None else self._loop.call_later(wait, self._expire)
        for job in late:
            waited = f"{1000 * (now - job.arrived):.0f} ms in the queue"
            job.error = ServeError("the request waited too long", status=504, got=waited, hint="again in a moment")
            job.done()

    # ---- from here on in the instances' threads

    def _work(self, run: Run) -> None:
        while batch := self._pull():
            self._serve(batch, run, self._hand_over)

    def _pull(self) -> list[Job]:
        """The next batch, oldest job first; empty when the batcher closes."""
        with self._ready:
            while True:
                while not self._queue:
                    if self._closing:
                        return []
                    self._ready.wait()
                if self.max_wait_s:
                    self._fill()
                if batch := self._take(self._queue):
                    return batch

    def _fill(self) -> None:
        """Waits until a full batch is there, or the oldest job has waited long enough."""
        while self._queue and not self._closing:
            wait = self._queue[0].arrived + self.max_wait_s - perf_counter()
            if wait <= 0 or sum(job.request.rows for job in self._queue) >= self.max_rows:
                return
            self._ready.wait(wait)

    def _take(self, queue: deque[Job]) -> list[Job]:
        """Takes the oldest job and the next ones of the same shape that fit; the others keep their order."""
        batch: list[Job] = []
        passed: list[Job] = []
        rows = 0
        while queue and len(passed) < LOOK_AHEAD and (not batch or rows < self.max_rows):
            job = queue.popleft()
            if job.abandoned:
                continue
            request = job.request
            if not batch or (request.key == batch[0].request.key and rows + request.rows <= self.max_rows):
                batch.append(job)
                rows += request.rows
            else:
                passed.append(job)
        queue.extendleft(reversed(passed))
        return batch

    def _serve(self, jobs: list[Job], run: Run, deliver: Callable[[list[Job]], None]) -> None:
        started = perf_counter()
        try:
            self._run(jobs, run)
        except Exception as error:
            if len(jobs) > 1:
                # Somebody's input broke the batch: run each alone, so that only the culprit gets the error.
                for job in jobs:
                    self._serve([job], run, deliver)
                return
            if not isinstance(error, OxError):
                error = ServeError("the model failed", status=500, got=str(error))
            jobs[0].error = error
        run_s = perf_counter() - started
        for job in jobs:
            job.started, job.run_s = started, run_s
        deliver(jobs)

    def _hand_over(self, jobs: list[Job]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, jobs)
        except RuntimeError:  # the loop has been closed: nobody is left to answer
            return

    def _run(self, jobs: list[Job], run: Run) -> None:
        if len(jobs) == 1:
            jobs[0].outputs = run(jobs[0].request.feed)
            return
        feeds = [job.request.feed for job in jobs]
        outputs = run({name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]})
        first = 0
        for job in jobs:
            end = first + job.request.rows
            job.outputs = [output[first:end] for output in outputs]
            first = end

    # ---- back on the event loop

    def _deliver(self, jobs: list[Job]) -> None:
        self._observe(sum(job.request.rows for job in jobs), jobs[0].run_s)
        for job in jobs:
            job.done()
