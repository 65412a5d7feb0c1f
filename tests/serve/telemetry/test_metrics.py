"""/metrics, read back by Prometheus's own parsers."""

from __future__ import annotations

import asyncio
import gzip
import math
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from rows import rows as cases

from ox.serve import ModelConfig, Server
from ox.serve.telemetry import metrics, snapshot

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_of(families: Iterable[Metric]) -> Samples:
    found: Samples = {}
    for family in families:
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    """The one sample of that name whose labels are these, among others."""
    (found,) = (
        number for (known, its), number in samples.items() if known == name and frozenset(labels.items()) <= its
    )
    return found


def scrape(client: Any, accept: str = "") -> Samples:
    status, headers, body = client.ask("GET", "/metrics", headers={"accept": accept} if accept else {})
    assert status == 200
    if accept:
        assert headers["content-type"].startswith("application/openmetrics-text")
        return samples_of(parse_openmetrics(body.decode()))
    assert headers["content-type"].startswith("text/plain")
    return samples_of(parse_text(body.decode()))


def test_requests_are_counted_in_every_form(client: Any, infer: Any) -> None:
    before = scrape(client)
    for rows in (1, 2, 4):
        infer(client, "mlp", x=np.ones((rows, 64), np.float32))
    assert client.ask("POST", "/v2/models/mlp/infer", b"{}")[0] == 400
    after = scrape(client)

    def grown(name: str, **labels: str) -> float:
        known = any(other == name and frozenset(labels.items()) <= its for other, its in before)
        return value(after, name, **labels) - (value(before, name, **labels) if known else 0)

    one = {"model": "mlp", "version": "1"}
    for stage in ("parse", "queue", "run", "serialise", "batch"):
        assert grown("ox_stage_seconds_count", **one, stage=stage) == 3
        assert grown("ox_stage_seconds_bucket", **one, stage=stage, le="+Inf") == 3
    assert grown("ox_request_seconds_count", **one) == 3
    assert grown("ox_batch_rows_sum", **one) == 7 and grown("ox_batch_rows_count", **one) == 3
    assert sum(grown("ox_batches_total", **one, left=why) for why in ("full", "idle", "wait", "deadline")) == 3
    assert grown("ox_failures_total", **one, reason="OTHER") == 1
    assert grown("ox_requests_total", status="200") == 4 and value(after, "ox_requests_total", status="400") >= 1

    assert grown("nv_inference_request_success", **one) == 3
    assert grown("nv_inference_count", **one) == 7 and grown("nv_inference_exec_count", **one) == 3
    assert grown("nv_inference_request_failure", **one, reason="OTHER") == 1
    assert value(after, "nv_inference_pending_request_count", **one) == 0
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    whole = grown("nv_inference_request_duration_us", **one)
    assert 0 < sum(grown(f"nv_inference_{part}_duration_us", **one) for part in parts) <= whole + len(parts)


def test_what_runs_and_what_is_held(server: Server, client: Any) -> None:
    samples = scrape(client)
    batching = str(server.service.repository.find("mlp").proof.max_rows)
    info = {"model": "mlp", "version": "1", "device": "cpu", "provider": "CPUExecutionProvider", "batching": batching}
    assert value(samples, "ox_model_info", **info) == 1
    assert value(samples, "ox_connections") >= 1 and value(samples, "ox_workers") == 1
    assert value(samples, "process_resident_memory_bytes") > 1 << 20
    assert value(samples, "process_cpu_seconds_total") > 0
    assert 0 < value(samples, "process_open_fds") < value(samples, "process_max_fds")
    assert not any(name.startswith("nv_gpu") for name, _ in samples)  # nothing runs on one


def test_openmetrics_says_the_same(client: Any) -> None:
    scrape(client)  # its answer is counted once it has been given
    plain, other = scrape(client), scrape(client, OPENMETRICS)
    assert {name for name, _ in plain} == {name for name, _ in other}
    assert set(plain) == set(other)


@pytest.mark.parametrize(
    "accept", ["*/*", "application/openmetrics-text; version=zz; escaping=?", "text/plain;version=9"]
)
def test_any_accept_is_answered(client: Any, accept: str) -> None:
    status, _, body = client.ask("GET", "/metrics", headers={"accept": accept})
    assert status == 200 and b"ox_model_info" in body


@cases(("accept", "openmetrics"), [
    ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", True),
    ("text/plain;q=0.9, application/openmetrics-text;q=0.1", False), ("application/openmetrics-text;q=0", False),
    ("application/openmetrics-text; q=x", True),
])  # fmt: skip
def test_the_form_that_is_wanted(client: Any, accept: str, openmetrics: bool) -> None:
    _, headers, _ = client.ask("GET", "/metrics", headers={"accept": accept})
    assert headers["content-type"].startswith("application/openmetrics-text") is openmetrics
    assert "vary" in headers


def test_labels_are_not_made_up_by_clients(client: Any) -> None:
    before = scrape(client)
    for name in ("nobody", "mlp%22", "x" * 300):
        assert client.ask("POST", f"/v2/models/{name}/infer", b"{}")[0] == 404
    after = scrape(client)
    assert {key for key in after if key[0] != "ox_requests_total"} == {
        key for key in before if key[0] != "ox_requests_total"
    }


def test_histograms_are_whole(client: Any) -> None:
    samples = scrape(client)
    for (name, labels), count in samples.items():
        if name.endswith("_bucket") and ("le", "+Inf") in labels:
            rest = dict(labels - {("le", "+Inf")})
            assert value(samples, name.removesuffix("_bucket") + "_count", **rest) == count
            bounds = [
                (float(dict(its)["le"]), number)
                for (other, its), number in samples.items()
                if other == name and rest.items() <= dict(its).items()
            ]
            counts = [number for _, number in sorted(bounds)]
            assert counts == sorted(counts) and max(bounds)[0] == math.inf


def test_the_server_object_is_what_is_shown(server: Server, client: Any) -> None:
    assert client.ask("GET", "/v2/health/live")[0] == 200  # the first reply of all, where this test comes first
    assert value(scrape(client), "ox_requests_total", status="200") == server.replies[200] - 1  # the scrape itself


def test_a_model_without_requests_has_counters_and_no_histograms(mlp: Path, connect: Any, infer: Any) -> None:
    histograms = {"ox_request_seconds", "ox_stage_seconds", "ox_batch_rows"}

    def families() -> dict[str, Metric]:
        status, _, body = client.ask("GET", "/metrics")
        assert status == 200
        found = {family.name: family for family in parse_text(body.decode())}
        assert all(family.samples for family in found.values())
        return found

    with Server([mlp], options=ModelConfig("cpu", max_rows=8, instances=1)) as server, connect(server) as client:
        idle = families()
        assert not histograms & set(idle)
        for name in ("ox_failures", "ox_batches", "nv_inference_request_success", "nv_inference_request_failure"):
            assert idle[name].samples and {sample.value for sample in idle[name].samples} == {0.0}
        infer(client, "mlp", x=np.ones((1, 64), np.float32))
        assert set(families()) - set(idle) == histograms | {"ox_requests"}


def test_a_scrape_is_compressed(client: Any, infer: Any) -> None:
    infer(client, "mlp", x=np.ones((1, 64), np.float32))
    for coding, decompress in (("gzip", gzip.decompress), ("deflate", zlib.decompress)):
        status, headers, body = client.ask("GET", "/metrics", headers={"accept-encoding": coding})
        assert status == 200 and headers["content-encoding"] == coding and "accept-encoding" in headers["vary"]
        assert b"\nox_request_seconds_count{" in decompress(body)
    assert "content-encoding" not in client.ask("GET", "/metrics")[1]


def test_the_event_loop_runs_during_a_scrape(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks run after each model, and the text is written in another thread."""
    turns: list[str] = []
    of_model = snapshot.of_model

    def collected(model: Any) -> Any:
        asyncio.get_running_loop().call_soon(turns.append, "other task")
        turns.append("model")
        return of_model(model)

    def render(*arguments: Any) -> Any:
        writers.append(threading.current_thread())
        return write(*arguments)

    writers: list[threading.Thread] = []
    write = metrics.render
    monkeypatch.setattr(snapshot, "of_model", collected)
    monkeypatch.setattr(metrics, "render", render)
    assert client.ask("GET", "/metrics")[0] == 200
    assert turns == ["model", "other task"] * len(server.models)
    assert [thread.name == "ox-server" for thread in writers] == [False]
