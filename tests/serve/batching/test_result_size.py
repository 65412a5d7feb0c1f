"""How much memory results will take, before they are there."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.clock import SYSTEM
from ox.graph.contract import TensorInfo
from ox.serve.batching.job import Job
from ox.serve.batching.result_size import TEXT, ResultSize
from ox.serve.protocol.v2.request import Request, RequestedOutput
from ox.serve.response_memory import LARGE


def job(rows: int, width: int = 1, binary: bool = True) -> Job:
    feed = {"x": np.zeros((rows, width), np.float32)}
    return Job(Request(None, feed, rows, (), [RequestedOutput(0, binary)]), SYSTEM.now())


def sized(*dims: tuple[Any, ...], dtype: str = "FP32") -> ResultSize:
    return ResultSize([TensorInfo(f"y{place}", dtype, shape) for place, shape in enumerate(dims)])


def learn(size: ResultSize, job: Job, count: int) -> None:
    assert size.learn(job.request.feed, job.request.rows, [np.zeros(count, np.uint8)]) == count


def test_shapes_say_it() -> None:
    size = sized(("batch", 1000), ("batch", 10, 10))
    assert size.known and size.of(job(3)) == 3 * 4400 and size.small_rows == LARGE // 4400
    assert size.of(job(3, binary=False)) == 3 * 4400 * (1 + TEXT)
    whole = sized((1, 1000))
    assert whole.of(job(1)) == 4000 and whole.small_rows > 1 << 32
    assert sized((1, 1 << 20)).small_rows == 0
    assert sized(("batch", 1000), dtype="FP16").of(job(3)) == 6000
    assert sized(("batch",)).of(job(5)) == 20 and sized(()).of(job(5)) == 4


def test_what_came_out_before_says_it() -> None:
    size = sized(("batch", "length"))
    assert not size.known and size.of(job(4)) == 0 and size.small_rows > 1 << 32
    learn(size, job(2, width=100), 1 << 20)
    assert size.of(job(2, width=100)) == 1 << 20
    assert size.of(job(1, width=100)) == 1 << 19
    assert size.of(job(2, width=10)) < (1 << 20) // 9  # less goes in
    assert size.small_rows == LARGE // (1 << 19)
    learn(size, job(1, width=10), (1 << 20) // 20)  # as much as was expected of so small a request
    assert size.of(job(2, width=100)) > (1 << 20) - 100
    learn(size, job(2, width=100), 2 << 20)
    assert size.of(job(2, width=100)) == 2 << 20


def test_one_large_result_is_forgotten() -> None:
    size = sized(("batch", "length"))
    learn(size, job(1), 16 << 20)
    assert size.of(job(1)) == 16 << 20 and size.has_large_rows
    learn(size, job(1), 16)
    assert 8 << 20 < size.of(job(1)) < 16 << 20  # not at once: the next may be as large
    for _ in range(30):
        learn(size, job(1), 16)
    assert size.of(job(1)) < LARGE and size.small_rows and not size.has_large_rows


def test_a_result_that_is_refused_tells_nothing() -> None:
    size = ResultSize([TensorInfo("y", "FP32", ("length",))], 1 << 20)
    learn(size, job(1), 8 << 20)
    assert size.of(job(1)) == 0 and not size.has_large_rows
    learn(size, job(1), 1 << 20)
    assert size.of(job(1)) == size.of(job(4)) == 1 << 20  # more than an answer may have is not waited for


def test_a_model_that_does_not_keep_to_its_shapes() -> None:
    size = sized(("batch", 10))
    learn(size, job(2), 80)
    assert size.known
    learn(size, job(2), 8 << 20)
    assert not size.known and size.of(job(1)) == 4 << 20 and size.small_rows == 0


def test_strings_are_not_known() -> None:
    assert not sized(("batch", 10), dtype="BYTES").known
