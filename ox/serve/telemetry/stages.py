"""What one version of a model has done so far: everything that metrics, statistics and the page show of it.

Plain numbers, changed on the event loop alone. Three calls keep them: `answered` once a request that succeeded,
`failed` once one that did not, `ran` once a batch that succeeded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ox.clock import Clock
from ox.errors import ServeError
from ox.serve.telemetry.histogram import ROWS, SECONDS, Histogram

if TYPE_CHECKING:
    from ox.serve.batching.job import Job
    from ox.serve.telemetry.traces import Tracer

STAGES = ("parse", "queue", "batch", "run", "serialise")
REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")  # Triton's words
REJECTED = (429, 503, 504)
MOST_PENDING = 1000  # values of a histogram, beside those of one batch, before they are sorted in


Headers = Mapping[bytes, bytes]
NOTHING: Headers = {}


class Sizes:
    """The batches of one number of rows: how many, and their seconds."""

    __slots__ = ("count", "gather_s", "run_s")

    def __init__(self) -> None:
        self.count, self.gather_s, self.run_s = 0, 0.0, 0.0


class Stages:
    """Where a model's requests spend their time, what became of them, and how many rows run together.

    `parse`, `queue`, `run`, `serialise` and `request` (all of it) count requests that succeeded: `request.count` of
    them in `request.total` seconds. `batch` (putting inputs together) and `batch_rows` count runs that succeeded:
    `batch_rows.count` of them with `batch_rows.total` rows.
    """

    __slots__ = (
        "batch", "batch_rows", "clock", "failed_s", "failures", "generations", "last", "now", "parse", "queue",
        "request", "run", "serialise", "sizes", "start_s", "together", "tracer", "unknown_parameters",
    )  # fmt: skip

    def __init__(self, clock: Clock) -> None:
        self.clock, self.now = clock, clock.now
        self.parse, self.queue, self.batch = Histogram(SECONDS), Histogram(SECONDS), Histogram(SECONDS)
        self.run, self.serialise, self.request = Histogram(SECONDS), Histogram(SECONDS), Histogram(SECONDS)
        self.batch_rows = Histogram(ROWS)
        self.failures = dict.fromkeys(REASONS, 0)
        self.failed_s = 0.0
        self.generations = 0  # texts of requests that succeeded
        self.unknown_parameters = 0  # requests for texts that had some, which were ignored
        self.start_s = clock.calendar()  # when counting began
        self.sizes: dict[int, Sizes] = {}  # rows -> what batches of so many rows took
        self.last = 0.0  # time of the last answer
        self.together = 0  # rows of the batch whose jobs are being answered
        self.tracer: Tracer | None = None

    def answered(self, received: float, job: Job, begun: float, headers: Headers = NOTHING) -> None:
        """A request succeeded: it was `received`, became `job` once parsed, and its answer was `begun` to be written.

        Called when the answer is written; the times are the clock's. `headers` are HTTP's or gRPC's metadata, in
        which a trace may come.
        """
        now = self.now()
        self.parse.observe(job.arrived - received)
        self.queue.observe(job.started - job.arrived)
        self.run.observe(job.run_s)
        self.serialise.observe(now - begun)
        self.request.observe(now - received)
        self.last = now
        if self.tracer is not None:
            self.tracer.answered(headers, job, (received, begun, now), self.together)

    def text(
        self, times: tuple[float, float, float, float], counts: Mapping[str, int], headers: Headers = NOTHING, *,
        generations: int = 1,
    ) -> None:  # fmt: skip
        """All generations of a request ended, see `Tracer.text`: `queue` is the time to the first token, `run` that of
        the others."""
        self.generations += generations
        received, submitted, first, last = times
        self.parse.observe(submitted - received)
        self.queue.observe(first - submitted)
        self.run.observe(last - first)
        self.request.observe(last - received)
        self.last = last
        if len(self.request.pending) >= MOST_PENDING:
            for histogram in (self.parse, self.queue, self.run, self.request):
                histogram.sort_in()
        if self.tracer is not None:
            self.tracer.text(headers, times, counts)

    def failed(self, error: Exception | None, received: float, headers: Headers = NOTHING) -> None:
        """A request was refused or failed; None for a client that left."""
        self.failures["CANCELED" if error is None else reason(error)] += 1
        now = self.now()
        self.failed_s += now - received
        if self.tracer is not None:
            self.tracer.failed(headers, error, received, now)

    @contextmanager
    def counting_failures(self, received: float, headers: Headers = NOTHING) -> Iterator[None]:
        """Counts what the body raises as a failed request, and raises it."""
        try:
            yield
        except Exception as error:
            self.failed(error, received, headers)
            raise

    def ran(self, rows: int, run_s: float, gather_s: float = 0.0) -> None:
        """A batch ran, after its inputs were put together."""
        self.together = rows
        self.batch_rows.observe(rows)
        self.batch.observe(gather_s)
        if len(self.request.pending) + len(self.batch.pending) >= MOST_PENDING:
            for histogram in (
                self.parse, self.queue, self.batch, self.run, self.serialise, self.request, self.batch_rows
            ):  # fmt: skip
                histogram.sort_in()
        size = self.sizes.get(rows)
        if size is None:
            size = self.sizes[rows] = Sizes()
        size.count += 1
        size.gather_s += gather_s
        size.run_s += run_s


def reason(error: Exception) -> str:
    """Triton's reason for a failed request."""
    status = error.status if isinstance(error, ServeError) else 500
    if status in REJECTED:
        return "REJECTED"
    if status == 499:
        return "CANCELED"
    return "BACKEND" if status >= 500 else "OTHER"
