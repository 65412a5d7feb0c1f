"""The form of statistics, from what a model's stages have counted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from manual_clock import ManualClock

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve.batching.job import Job
from ox.serve.protocol.v2.request import Request
from ox.serve.protocol.v2.statistics import statistics
from ox.serve.telemetry.snapshot import of_stages
from ox.serve.telemetry.stages import Stages


def made(stages: Stages) -> dict[str, Any]:
    return statistics("m", "3", of_stages(stages))


def test_nothing_yet() -> None:
    got = made(Stages(SYSTEM))
    assert (got["name"], got["version"], got["last_inference"], got["batch_stats"]) == ("m", "3", 0, [])
    assert got["inference_count"] == got["execution_count"] == 0
    assert all(entry == {"count": 0, "ns": 0} for entry in got["inference_stats"].values())


def test_what_was_counted() -> None:
    clock = ManualClock()
    stages = Stages(clock)
    stages.ran(4, 0.25, 0.125)
    stages.ran(4, 0.25, 0.125)
    stages.ran(1, 0.5)
    for _ in range(3):
        job = Job(Request(None, {}, 3, (), []), clock.now())
        job.started, job.run_s = job.arrived + 0.5, 0.25
        clock.advance(1)
        stages.answered(job.arrived - 2, job, clock.now() - 0.25)
    stages.failed(ServeError("no"), clock.now() - 1)
    got = made(stages)
    assert (got["inference_count"], got["execution_count"]) == (9, 3)
    assert got["last_inference"] == 1000 * clock.calendar()
    seconds = {name: (entry["count"], entry["ns"] / 1e9) for name, entry in got["inference_stats"].items()}
    assert seconds["queue"] == (3, pytest.approx(1.5)) and seconds["compute_infer"] == (3, pytest.approx(0.75))
    assert seconds["compute_input"] == (3, pytest.approx(6)) and seconds["compute_output"] == (3, pytest.approx(0.75))
    assert seconds["success"] == (3, pytest.approx(9)) and seconds["fail"] == (1, pytest.approx(1))
    assert seconds["cache_hit"] == seconds["cache_miss"] == (0, 0)
    one, four = got["batch_stats"]
    assert (one["batch_size"], four["batch_size"]) == (1, 4)
    assert four["compute_infer"] == {"count": 2, "ns": 500_000_000}
    assert four["compute_input"] == {"count": 2, "ns": 250_000_000} and four["compute_output"] == {"count": 2, "ns": 0}


def test_counts_are_whole_numbers() -> None:
    stages = Stages(SYSTEM)
    stages.ran(2, 0.1)
    assert type(made(stages)["inference_count"]) is int


def test_sizes_are_sorted_as_numbers() -> None:
    stages = Stages(SYSTEM)
    for rows in (10, 9, 2):
        stages.ran(rows, 0.1)
    assert [entry["batch_size"] for entry in made(stages)["batch_stats"]] == [2, 9, 10]


def test_generations(ask: Any) -> None:
    """Each is an inference, those of a stream and of `n` too; a refused request counts as a failure."""

    def counted() -> tuple[int, ...]:
        (entry,) = ask("GET", "/v2/models/tiny/stats")[1]["model_stats"]
        (metric,) = re.findall(rb'\nnv_inference_count{model="tiny",version="1"} (\d+)', ask("GET", "/metrics")[1])
        stats = entry["inference_stats"]
        counts = (entry["execution_count"], int(metric), stats["success"]["count"], stats["fail"]["count"])
        return entry["inference_count"], *counts

    before = counted()
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    for more, status in (({"n": 3}, 200), ({"stream": True}, 200), ({"n": 0}, 400)):
        assert ask("POST", "/v1/chat/completions", chat | more)[0] == status
    assert [after - old for old, after in zip(before, counted(), strict=True)] == [4, 4, 4, 2, 1]
