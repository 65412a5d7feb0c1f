"""What is counted of requests and batches."""

from __future__ import annotations

import numpy as np
import pytest
from manual_clock import ManualClock
from rows import rows

from ox.clock import SYSTEM
from ox.errors import DeviceError, ServeError
from ox.serve.batching.job import Job
from ox.serve.protocol.v2.request import Request
from ox.serve.telemetry.stages import MOST_PENDING, REASONS, Stages, reason


def test_an_answer_is_counted_in_every_stage() -> None:
    clock = ManualClock()
    stages, now = Stages(clock), clock.now()
    job = Job(Request(None, {"x": np.zeros((1, 1))}, 1, (), []), now - 3)
    job.started, job.run_s = now - 2, 0.5
    stages.answered(now - 4, job, now - 0.25)
    assert [stages.parse.total, stages.queue.total, stages.run.total] == pytest.approx([1, 1, 0.5])
    assert (stages.request.total, stages.serialise.total) == pytest.approx((4, 0.25))
    assert stages.serialise.count == stages.request.count == 1
    assert stages.last == now and sum(stages.failures.values()) == 0


@rows(
    ("error", "expected"),
    [
        (ServeError("full", status=503), "REJECTED"),
        (ServeError("too many", status=429), "REJECTED"),
        (ServeError("late", status=504), "REJECTED"),
        (ServeError("gone", status=499), "CANCELED"),
        (ServeError("wrong shape"), "OTHER"),
        (ServeError("the model failed", status=500), "BACKEND"),
        (DeviceError("no driver"), "BACKEND"),
        (ZeroDivisionError(), "BACKEND"),
        (None, "CANCELED"),
    ],
)
def test_a_failure_has_one_of_tritons_reasons(error: Exception | None, expected: str) -> None:
    clock = ManualClock()
    stages = Stages(clock)
    stages.failed(error, clock.now() - 2)
    assert stages.failures == {**dict.fromkeys(REASONS, 0), expected: 1} and stages.failed_s == 2
    assert error is None or reason(error) == expected


def test_batches_by_size() -> None:
    stages = Stages(SYSTEM)
    stages.ran(8, 0.25, 0.125)
    stages.ran(8, 0.5)
    stages.ran(3, 1.0)
    assert (stages.batch_rows.total, stages.batch_rows.count, stages.batch.total) == (19, 3, 0.125)
    eight = stages.sizes[8]
    assert (eight.count, eight.run_s, eight.gather_s, stages.sizes[3].count) == (2, 0.75, 0.125, 1)


def test_counts_that_nobody_reads_take_no_memory() -> None:
    stages = Stages(SYSTEM)
    job = Job(Request(None, {"x": np.zeros((1, 1))}, 1, (), []), SYSTEM.now())
    for _ in range(5 * MOST_PENDING):
        stages.ran(2, 0.5, 0.25)
        stages.answered(job.arrived, job, job.arrived)
    assert max(len(each.pending) for each in (stages.request, stages.batch, stages.batch_rows)) < MOST_PENDING
    assert (stages.request.count, stages.batch.total, stages.batch_rows.total) == (5000, 1250, 10000)
