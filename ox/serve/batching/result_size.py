"""How much memory the results of requests will take: from the outputs' shapes, or estimated."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ox.graph.contract import DTYPES, Array, TensorInfo
from ox.serve.batching.job import Job
from ox.serve.batching.queue import Group
from ox.serve.batching.running_batch import RunningBatch
from ox.serve.response_memory import LARGE, MemoryRequest, ResponseMemory, memory_of
from ox.serve.runtime.instance import Feed

FORGOTTEN = 0.25  # of what a guess was too large by
TEXT = 5  # a number in JSON takes up to so many times its bytes
COPIES = 2  # while a run lasts: its outputs are ONNX Runtime's until each job has a copy of its own


class ResultSize:
    """The bytes that a model's results take.

    Where nothing but the rows varies they are known. Else they are taken for the most that came out of late, of a row
    or of a byte of input, whichever is less: a larger one is believed at once, and forgotten over the next few dozen
    that are smaller. Before the first run nothing is known, and the guess is 0.

    Args:
        outputs: the model's.
        largest: bytes of an answer. Results that are larger are refused and soon gone, so they tell nothing.
    """

    def __init__(self, outputs: Sequence[TensorInfo], largest: int = 1 << 62) -> None:
        self._largest = largest
        self.known = all(info.dtype != "BYTES" and _is_fixed_size(info.dims[1:]) for info in outputs)
        self._fixed = self._row = 0.0
        if self.known:
            for info in outputs:
                size = DTYPES[info.dtype].itemsize * prod(int(size) for size in info.dims[1:] if size is not None)
                first = info.dims[0] if info.dims else 1
                if isinstance(first, int):
                    self._fixed += first * size
                else:
                    self._row += size
        self._ratio = 0.0  # bytes of results for a byte of input
        self.small_rows = 0  # so many rows have small results, as far as is known
        self._bound()

    def of(self, job: Job) -> int:
        """Bytes that are to be expected of a request's results, and of the text that is written of them."""
        request = job.request
        size = self._fixed + request.rows * self._row
        if not self.known:
            size = min(size, self._ratio * memory_of(request.feed.values()), self._largest)
        return int(size if _only_binary(job) else size * (1 + TEXT))

    def need(self, group: Group, max_rows: int) -> MemoryRequest | None:
        """The memory that the results of a group's next batch take; None for a little."""
        job = group.heap[0].job
        rows, first = max(job.request.rows, 1), self.of(job)
        most = max(first, first * min(group.rows, max_rows) // rows)
        if most < LARGE:
            return None
        copies = COPIES if _only_binary(job) else 1  # text takes more, and is written when only the copies are left
        return MemoryRequest(rows, copies * first, copies * most, wait=first >= LARGE)

    def learn(self, feed: Feed, rows: int, outputs: Sequence[Array]) -> int:
        """What came out of a request; gives its bytes."""
        size, rows, given = memory_of(outputs), max(rows, 1), max(memory_of(feed.values()), 1)
        if self.known and size <= self._fixed + rows * self._row:
            return size
        self.known = False  # ONNX Runtime does not hold a model to the shapes that it declares
        if size > self._largest:
            return size
        guess = min(rows * self._row, self._ratio * given)
        if size >= guess:
            self._row, self._ratio = max(self._row, size / rows), max(self._ratio, size / given)
        else:
            less = 1 - FORGOTTEN * (1 - size / guess)
            self._row, self._ratio = self._row * less, self._ratio * less
        self._bound()
        return size

    @property
    def has_large_rows(self) -> bool:
        """Whether a row is taken for large: then small results are worth learning from, too."""
        return not self.small_rows

    def _bound(self) -> None:
        room = max(0.0, LARGE - self._fixed)
        self.small_rows = int(room / self._row) if self._row else 1 << 62 if room else 0


def keep(jobs: Sequence[Job], running_batch: RunningBatch | None, sizes: ResultSize, memory: ResponseMemory) -> None:
    """Counts large results from now on. Each job has its own: one whose client is slow holds no others' memory."""
    for job in jobs:
        size = sizes.learn(job.request.feed, job.request.rows, job.outputs)
        if size < LARGE:
            continue
        promised = 0
        if running_batch is not None:
            promised = min(size, running_batch.reserved_bytes)
            running_batch.large = True
        job.outputs = memory.track(job.outputs, promised)
        if running_batch is not None:  # only now: there may be no memory for a copy
            running_batch.reserved_bytes -= promised


def _only_binary(job: Job) -> bool:
    return all(wanted.binary for wanted in job.request.outputs)


def _is_fixed_size(dims: Sequence[int | str | None]) -> bool:
    return all(isinstance(size, int) for size in dims)
