"""Which memory the next batch of a queue needs for its results, and how much of the queue fits into what it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ox.serve.batching.deadlines import late
from ox.serve.batching.job import Job
from ox.serve.batching.queue import Queue
from ox.serve.batching.result_size import ResultSize
from ox.serve.response_memory import LARGE, MemoryRequest, ResponseMemory


class Room(NamedTuple):
    """What a batch may make: so many rows, for which so many bytes of the answers' memory are promised."""

    rows: int
    reserved_bytes: int


def wait_for_room(memory: ResponseMemory, ask: Callable[[], MemoryRequest | None]) -> Room | None:
    """Waits until the results of a batch have room, with as many jobs as fit into it. Small results do not wait:
    without room there are just fewer of them in a batch. None where they take no more than a little."""
    grant = memory.acquire(ask)
    if grant is None:
        return None
    need, size = grant
    return Room(max(1, (size or LARGE) * need.rows // max(need.min_bytes, 1)), size)


def need_of_next(
    queue: Queue, sizes: ResultSize, memory: ResponseMemory, max_rows: int, now: float
) -> tuple[MemoryRequest | None, list[Job]]:
    """The memory that the first jobs of a queue need, None for a small amount, and the stale jobs, which are removed.
    Called with the batcher's lock held."""
    out: list[Job] = []
    stale = late(now)
    while (group := queue.first()) is not None:
        job = group.heap[0].job
        # Set before the check: if the job becomes stale afterwards, the run checks again.
        job.on_abandon_result = memory.wake_all
        if not stale(job):
            return sizes.need(group, max_rows), out
        out += queue.remove_stale(stale)
    return None, out
