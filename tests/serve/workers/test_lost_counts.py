"""Counters go on where a worker that has ended had brought them; gauges end with it."""

from __future__ import annotations

from typing import Any

import orjson

from ox.clock import SYSTEM
from ox.serve.telemetry.metrics import render
from ox.serve.telemetry.snapshot import BOUNDS, of_stages
from ox.serve.telemetry.stages import Stages
from ox.serve.workers.lost_counts import counters, with_lost


def worker(rows: int, *models: str) -> dict[str, Any]:
    """Figures of a worker that ran one batch of so many rows."""
    stages = Stages(SYSTEM)
    stages.ran(rows, 0.5, 0.25)
    stages.failures["OTHER"] = rows
    counts = dict.fromkeys(("split", "late", "gone", "refused", "cells", "padding"), rows)
    info = {"device": "cpu", "provider": "CPU", "batching": "8", "samples": "0"}
    entry = {"info": info, "depth": rows, "left": {"full": rows}, **counts, **of_stages(stages)}
    gauges = {"connections": rows, "buffered": rows, "answers": rows}
    waits = {"answer_waits": rows, "answer_wait_s": rows / 2, "slow": rows, "dropped": rows}
    server = {"replies": {"200": rows}, "rpcs": {}, "reloads": {"a": {"loaded": rows}}, **gauges, **waits}
    process = {"cpu_s": 1.0 * rows, "resident": 5.0, "virtual": 6.0, "files": 7.0, "most_files": 8.0, "start_s": 9.0}
    made = {
        "workers": 1,
        "server": server,
        "process": process,
        "gpus": {"GPU-1": {"used": 5.0, "total": 8.0, "load": 0.5}},
        "models": {name: {"1": entry} for name in models},
        "bounds": BOUNDS,
    }
    return orjson.loads(orjson.dumps(made))  # type: ignore[no-any-return]


def values(figures: dict[str, Any]) -> dict[str, float]:
    """The metrics, by name and labels."""
    lines = render([figures])[0].decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_counters_are_kept_and_gauges_are_not() -> None:
    before, alive = values(with_lost([worker(8, "a"), worker(2, "a")], [])), worker(2, "a")
    after = values(with_lost([alive], [counters(worker(8, "a"))]))
    gauges = values(alive)
    kept = [name for name in before if before[name] == after[name] != gauges[name]]
    dropped = [name for name in before if before[name] != after[name] == gauges[name]]
    assert all(before[name] == after[name] for name in before if name not in dropped)
    for name in (
        'ox_batch_rows_sum{model="a",version="1"}',
        'ox_stage_seconds_count{model="a",stage="batch",version="1"}',
        'ox_failures_total{model="a",reason="OTHER",version="1"}',
        'ox_requests_total{status="200"}',
        'ox_reloads_total{model="a",outcome="loaded"}',
        "ox_answer_wait_seconds_total",
        "ox_slow_clients_total",
        "process_cpu_seconds_total",
        'nv_inference_count{model="a",version="1"}',
    ):
        assert name in kept, name
    assert set(dropped) == {
        'ox_queue_depth{model="a",version="1"}',
        'nv_inference_pending_request_count{model="a",version="1"}',
        *("ox_connections", "ox_body_bytes", "ox_answer_bytes", "ox_workers"),
        *("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds", "process_max_fds"),
    }


def test_models_that_nobody_serves_any_more_are_gone() -> None:
    whole = with_lost([worker(2, "a")], [counters(worker(8, "a", "b"))])
    assert list(whole["models"]) == ["a"] and whole["server"]["replies"] == {"200": 10}
    assert list(with_lost([worker(1)], [counters(worker(8, "a"))])["models"]) == []


def test_nothing_that_was_given_is_changed() -> None:
    given = [worker(8, "a"), worker(2, "a")]
    before = orjson.dumps(given)
    with_lost(given[:1], [counters(given[1])])
    assert orjson.dumps(given) == before
