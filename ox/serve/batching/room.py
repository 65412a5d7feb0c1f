"""Which memory the next batch of a queue needs for its results, and how much of the queue fits into what it gets."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from ox.serve.answer_memory import LARGE, AnswerMemory, Need
from ox.serve.batching.deadlines import late
from ox.serve.batching.job import Job
from ox.serve.batching.queue import Queue
from ox.serve.batching.result_size import ResultSize


class Room(NamedTuple):
    """What a batch may make: so many rows, for which so many bytes of the answers' memory are promised."""

    rows: int
    granted: int


def wait_for_room(memory: AnswerMemory, ask: Callable[[], Need | None]) -> Room | None:
    """Waits until the results of a batch have room, with as many jobs as fit into it. Small results do not wait:
    without room there are just fewer of them in a batch. None where they take no more than a little."""
    grant = memory.acquire(ask)
    if grant is None:
        return None
    need, size = grant
    return Room(max(1, (size or LARGE) * need.rows // max(need.least, 1)), size)


def need_of_next(queue: Queue, sizes: ResultSize, memory: AnswerMemory, max_rows: int) -> tuple[Need | None, list[Job]]:
    """What the first jobs of a queue need, None for a little; and those that nobody waits for, taken out of it. Called
    with the batcher's lock held."""
    out: list[Job] = []
    stale = late(perf_counter())
    while (group := queue.first()) is not None:
        job = group.heap[0].job
        # Set before the look: if its client leaves, or is told that it is late, after it, the run asks again.
        job.on_let_go = memory.look_again
        if not stale(job):
            return sizes.need(group, max_rows), out
        out += queue.throw_out(stale)
    return None, out
