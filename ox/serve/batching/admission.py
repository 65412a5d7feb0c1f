"""What may wait in a queue: so many rows, so many bytes, with which priority and until when."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from ox.errors import ServeError
from ox.serve.batching.job import Job
from ox.serve.batching.queue import Queue
from ox.serve.gpu_budget import GpuBudget
from ox.serve.response_memory import ResponseMemory, memory_of

MAX_AGE = 0.25  # of a deadline: what the lowest priority waits longer than the highest
PURGE_S = 0.005
MAX_RETRY_S = 60.0


class Sized(Protocol):
    """Whatever holds bytes."""

    @property
    def size(self) -> int: ...


class Budget:
    """Bytes that all models of a server share: of requests that wait, of what sequences keep, and of answers until they
    have left.

    Queues and sequences add up their own; so no lock is needed for them. `gpu` is for models that are loaded.
    """

    def __init__(self, limit: int, states_limit: int, answers: ResponseMemory, gpu: GpuBudget | None = None) -> None:
        self.limit, self.states_limit, self.answers = limit, states_limit, answers
        self.gpu = gpu or GpuBudget()
        self.queues: list[Sized] = []
        self.states: list[Sized] = []

    @property
    def held(self) -> int:
        return sum(queue.size for queue in self.queues)

    @property
    def states_bytes(self) -> int:
        return sum(states.size for states in self.states)


class QueueAdmission:
    """Lets jobs into a queue, or refuses them. Called with the batcher's lock held.

    Args:
        max_queue: the most rows that wait; a larger request is let into an empty queue.
        deadline_s: the time limit of a job without its own limit.
        timeout_s: how long one may take that does; more is cut to that, but never below `deadline_s`.
        budget: bytes that all models of a server share; None for no limit.
        levels, usual: the lowest priority, and that of jobs which ask for none.
        instances: how many batches run at once, for guessing when there will be room.
    """

    def __init__(
        self,
        *,
        max_queue: int,
        deadline_s: float,
        timeout_s: float = 60.0,
        budget: Budget | None = None,
        levels: int = 10,
        usual: int = 5,
        instances: int = 1,
    ) -> None:
        self.max_queue, self.deadline_s, self.timeout_s = max_queue, deadline_s, max(deadline_s, timeout_s)
        self.queue = Queue()
        self.run_s = 0.0  # of a batch, on average
        self._budget, self._levels, self._usual, self._instances = budget, levels, usual, instances
        self._age_s = min(0.25, MAX_AGE * deadline_s / levels)
        self._rows_s = 0.0  # rows a second of one instance
        self._purged_at = 0.0

    def put(self, job: Job, key: Hashable) -> None:
        """Queues a job.

        Raises:
            ServeError: too much waits already (503, with the seconds until there is room).
        """
        queue, request = self.queue, job.request
        if queue.jobs and queue.rows + request.rows > self.max_queue and not self._has_room(job):
            raise self._busy(f"{queue.rows} samples wait already", f"at most {self.max_queue} (--max-queue)")
        size = memory_of(request.feed.values())
        budget = self._budget
        if budget is not None and budget.held + size > budget.limit:
            expected = f"at most {budget.limit}, of all models together (--limit buffered)"
            raise self._busy(f"{budget.held} bytes wait already", expected)
        job.limit(self.deadline_s, self.timeout_s)
        level = min(job.priority, self._levels) or self._usual
        queue.put(job, key, job.arrived + level * self._age_s, size)

    def ran(self, rows: int, run_s: float) -> None:
        """A batch took so long."""
        self.run_s += (run_s - self.run_s) / 16
        self._rows_s += (rows / max(run_s, 1e-6) - self._rows_s) / 16

    def open(self) -> None:
        """Its bytes count from now on."""
        if self._budget is not None:
            self._budget.queues.append(self.queue)

    def close(self) -> None:
        if self._budget is not None and self.queue in self._budget.queues:
            self._budget.queues.remove(self.queue)

    def _has_room(self, job: Job) -> bool:
        """Whether there is room once those whose clients have left are thrown out; not looked at for every request."""
        if job.arrived - self._purged_at < PURGE_S:
            return False
        self._purged_at = job.arrived
        self.queue.remove_stale(lambda other: other.abandoned)
        return self.queue.rows + job.request.rows <= self.max_queue or not self.queue.jobs

    def _busy(self, got: str, expected: str) -> ServeError:
        wait = self.queue.rows / (self._rows_s * self._instances) if self._rows_s else 1.0
        return ServeError(
            "the server is busy", status=503, expected=expected, got=got, hint="again in a moment",
            retry_after=min(wait, MAX_RETRY_S),
        )  # fmt: skip
