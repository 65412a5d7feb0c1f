"""What one version of a model has done so far: everything that metrics, statistics and the page show of it.

Plain numbers, changed on the event loop alone. Three calls keep them: `answered` once a request that succeeded,
`failed` once one that did not, `ran` once a batch.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from ox.errors import ServeError
from ox.serve.telemetry.histogram import ROWS, SECONDS, Histogram

if TYPE_CHECKING:
    from ox.serve.batching.job import Job

STAGES = ("parse", "queue", "batch", "run", "serialise")
REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")  # Triton's words
REJECTED = (429, 503, 504)


class Sizes:
    """The batches of one number of rows: how many, and their seconds."""

    __slots__ = ("count", "gather_s", "run_s")

    def __init__(self) -> None:
        self.count, self.gather_s, self.run_s = 0, 0.0, 0.0


class Stages:
    """Where a model's requests spend their time, what became of them, and how many rows run together.

    `parse`, `queue`, `run`, `serialise` and `request` (all of it) count requests that succeeded: `request.count` of
    them in `request.total` seconds. `batch` (putting inputs together) and `batch_rows` count runs: `batch_rows.count`
    of them with `batch_rows.total` rows.
    """

    __slots__ = (
        "batch", "batch_rows", "failed_s", "failures", "last", "parse", "queue", "request", "run", "serialise", "sizes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.parse, self.queue, self.batch = Histogram(SECONDS), Histogram(SECONDS), Histogram(SECONDS)
        self.run, self.serialise, self.request = Histogram(SECONDS), Histogram(SECONDS), Histogram(SECONDS)
        self.batch_rows = Histogram(ROWS)
        self.failures = dict.fromkeys(REASONS, 0)
        self.failed_s = 0.0
        self.sizes: dict[int, Sizes] = {}  # rows -> what batches of so many rows took
        self.last = 0.0  # perf_counter of the last answer

    def answered(self, received: float, job: Job, begun: float) -> None:
        """A request succeeded: it was `received`, became `job` once parsed, and its answer was `begun` to be written.

        Called when the answer is written; the times are perf_counter's.
        """
        now = perf_counter()
        self.parse.observe(job.arrived - received)
        self.queue.observe(job.started - job.arrived)
        self.run.observe(job.run_s)
        self.serialise.observe(now - begun)
        self.request.observe(now - received)
        self.last = now

    def failed(self, error: Exception | None, received: float) -> None:
        """A request was refused or failed; None for a client that left."""
        self.failures["CANCELED" if error is None else reason(error)] += 1
        self.failed_s += perf_counter() - received

    def ran(self, rows: int, run_s: float, gather_s: float = 0.0) -> None:
        """A batch ran, after its inputs were put together."""
        self.batch_rows.observe(rows)
        self.batch.observe(gather_s)
        size = self.sizes.get(rows)
        if size is None:
            size = self.sizes[rows] = Sizes()
        size.count += 1
        size.gather_s += gather_s
        size.run_s += run_s


def reason(error: Exception) -> str:
    """Triton's word for why a request failed."""
    status = error.status if isinstance(error, ServeError) else 500
    if status in REJECTED:
        return "REJECTED"
    if status == 499:
        return "CANCELED"
    return "BACKEND" if status >= 500 else "OTHER"
