"""Several workers' figures as one server's."""

from __future__ import annotations

from typing import Any

import orjson

from ox.clock import SYSTEM
from ox.serve.telemetry.merge import merge
from ox.serve.telemetry.snapshot import of_stages
from ox.serve.telemetry.stages import Stages


def worker(rows: int, start_s: float, names: tuple[str, ...] = ("mlp",)) -> dict[str, Any]:
    stages = Stages(SYSTEM)
    stages.ran(rows, 0.5, 0.25)
    stages.failures["OTHER"] = rows
    entry = {"info": {"provider": "CPU", "batching": "8"}, "depth": rows, "left": {"full": 1}, **of_stages(stages)}
    return {
        "workers": 1,
        "server": {"replies": {"200": rows}, "reloads": {}},
        "process": {"start_s": start_s, "files": 3.0},
        "gpus": {"GPU-1": {"used": 5.0}},
        "models": {name: {"1": {**entry, "last_ms": 100 * rows, "start_s": start_s}} for name in names},
    }


def test_numbers_add_up_and_words_stay() -> None:
    one = orjson.loads(orjson.dumps(worker(8, 50.0)))  # they travel as JSON
    two = orjson.loads(orjson.dumps(worker(3, 40.0, ("mlp", "cnn"))))
    whole = merge([one, two])
    mlp = whole["models"]["mlp"]["1"]
    assert whole["workers"] == 2 and whole["server"]["replies"] == {"200": 11}
    assert whole["process"] == {"start_s": 40.0, "files": 6.0}
    assert mlp["info"] == {"provider": "CPU", "batching": "8"} and mlp["depth"] == 11 and mlp["last_ms"] == 800
    assert mlp["start_s"] == 40.0
    assert mlp["batch_rows"]["total"] == 11 and sum(mlp["batch_rows"]["counts"]) == 2
    assert mlp["sizes"] == {"8": [1, 0.25, 0.5], "3": [1, 0.25, 0.5]} and mlp["left"]["full"] == 2
    assert whole["models"]["cnn"]["1"]["failures"]["OTHER"] == 3  # only one of them has it
    assert whole["gpus"] == {"GPU-1": {"used": 5.0}}  # both see the same one


def test_merging_changes_nothing_that_it_was_given() -> None:
    one, two = worker(8, 50.0), worker(3, 40.0)
    before = orjson.dumps([one, two])
    merge([one, two])
    assert orjson.dumps([one, two]) == before


def test_one_is_itself() -> None:
    assert merge([worker(8, 50.0)]) == worker(8, 50.0)
