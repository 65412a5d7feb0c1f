"""The jobs that wait, in groups that may share a batch. Not safe for threads: the batcher holds its lock.

Order is by rank: a job's arrival, moved back by a little for each level of priority. So a job of a lower priority lets
others pass only as long as it has not waited that much longer than they have: no job starves. A rank never changes,
which makes every group a heap, and the groups a heap by their first jobs: the next batch costs the
logarithm of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ox.serve.batching.job import Job

LOOK_AHEAD = 16  # jobs of a group that are passed over because they do not fit into what is left of a batch


class Entry(NamedTuple):
    """A job in its group; `number` settles equal ranks, and keeps jobs from being compared."""

    rank: float
    number: int
    job: Job
    size: int  # bytes


class Head(NamedTuple):
    """Where a group stood when it got this first job; out of date if it has another one by now."""

    rank: float
    number: int
    group: Group


class Group:
    """Jobs that may share a batch."""

    __slots__ = ("heap", "key", "rows")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.heap: list[Entry] = []
        self.rows = 0


class Batch(NamedTuple):
    """A batch: its jobs, whether more jobs wait than fit, and the stale jobs."""

    jobs: list[Job]
    full: bool
    stale: list[Job]


class Queue:
    """Jobs by group and rank, and how much they are: `jobs`, `rows`, `size` in bytes. `arrivals` counts those put."""

    def __init__(self) -> None:
        self.jobs = self.rows = self.size = self.arrivals = 0
        self._groups: dict[Hashable, Group] = {}
        self._heads: list[Head] = []

    def put(self, job: Job, key: Hashable, rank: float, size: int) -> None:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        self.arrivals += 1
        entry = Entry(rank, self.arrivals, job, size)
        heappush(group.heap, entry)
        if group.heap[0] is entry:
            heappush(self._heads, Head(rank, self.arrivals, group))
        self._count(group, entry, 1)

    def first(self) -> Group | None:
        """The group whose turn it is."""
        heads = self._heads
        while heads:
            head = heads[0]
            heap = head.group.heap
            if heap and heap[0].number == head.number:
                return head.group
            heappop(heads)
        return None

    def take(self, max_rows: int, stale: Callable[[Job], bool]) -> Batch:
        """The first job and the next of its group as far as they fit into `max_rows`; a first job that does not fit at
        all comes alone."""
        jobs: list[Job] = []
        dropped: list[Job] = []
        rows, full = 0, False
        while not jobs and (group := self.first()) is not None:
            heap = group.heap
            passed: list[Entry] = []
            while heap and rows < max_rows and len(passed) < LOOK_AHEAD:
                entry = heappop(heap)
                job = entry.job
                if jobs and rows + job.request.rows > max_rows:
                    passed.append(entry)
                    continue
                self._count(group, entry, -1)
                if stale(job):
                    dropped.append(job)
                else:
                    jobs.append(job)
                    rows += job.request.rows
            full = bool(passed) or rows >= max_rows
            for entry in passed:
                heappush(heap, entry)
            self._settle(group)
        return Batch(jobs, full, dropped)

    def remove_stale(self, stale: Callable[[Job], bool]) -> list[Job]:
        """Takes out every stale job, wherever it stands."""
        out: list[Job] = []
        for group in list(self._groups.values()):
            gone = [entry for entry in group.heap if stale(entry.job)]
            if not gone:
                continue
            for entry in gone:
                self._count(group, entry, -1)
            out += [entry.job for entry in gone]
            numbers = {entry.number for entry in gone}
            group.heap = [entry for entry in group.heap if entry.number not in numbers]
            heapify(group.heap)
            self._settle(group)
        return out

    def earliest(self) -> float | None:
        """The first deadline."""
        entries = (entry for group in self._groups.values() for entry in group.heap)
        return min((entry.job.deadline for entry in entries if entry.job.deadline is not None), default=None)

    def _settle(self, group: Group) -> None:
        """After a group's first job may have changed."""
        if group.heap:
            heappush(self._heads, Head(group.heap[0].rank, group.heap[0].number, group))
        else:
            del self._groups[group.key]

    def _count(self, group: Group, entry: Entry, sign: int) -> None:
        rows = sign * entry.job.request.rows
        group.rows += rows
        self.rows += rows
        self.jobs += sign
        self.size += sign * entry.size
