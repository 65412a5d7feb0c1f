"""Spans, as OpenTelemetry's own exporters get them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from span_memory import span_memory
from waiting import wait_until

from ox.errors import ArgumentError
from ox.installation import install_command
from ox.serve import ModelConfig, RequestLimits, Server

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ox.serve.telemetry.traces import provider

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
STAGES = ["parse", "queue", "run", "serialise"]


@pytest.fixture(scope="module")
def traced(mlp: Path) -> Iterator[tuple[Server, InMemorySpanExporter]]:
    spans, memory = span_memory()
    with Server([mlp], options=ModelConfig(device="cpu", instances=1)) as server:
        server.service.telemetry.trace(spans)
        yield server, memory


def ask(server: Server, connect: Any, body: Any, **headers: str) -> int:
    with connect(server) as client:
        status: int = client.ask("POST", "/v2/models/mlp/infer", json.dumps(body).encode(), headers)[0]
        return status


def inputs(rows: int) -> dict[str, Any]:
    entry = {"name": "x", "shape": [rows, 64], "datatype": "FP32", "data": np.ones(64 * rows).tolist()}
    return {"id": "seven", "inputs": [entry]}


def test_a_request_and_its_stages(traced: tuple[Server, InMemorySpanExporter], connect: Any) -> None:
    server, memory = traced
    memory.clear()
    assert ask(server, connect, inputs(3), traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="a=b") == 200
    *children, whole = memory.get_finished_spans()
    assert whole.name == "infer mlp" and whole.kind is SpanKind.SERVER and whole.status.status_code is StatusCode.UNSET
    assert f"{whole.context.trace_id:032x}" == TRACE and whole.parent and f"{whole.parent.span_id:016x}" == PARENT
    assert whole.context.trace_state.get("a") == "b"
    said = {"ox.model": "mlp", "ox.version": "1", "ox.rows": 3, "ox.batch.rows": 3, "ox.request.id": "seven"}
    assert whole.attributes == said
    assert [child.name for child in children] == STAGES
    assert all(child.parent == whole.context and child.context.trace_id == whole.context.trace_id for child in children)
    times = [(child.start_time, child.end_time) for child in children]
    assert times == sorted(times) and all(start <= end for start, end in times)
    assert whole.start_time == times[0][0] and whole.end_time == times[-1][1]
    run = children[2]
    assert run.attributes == said and [event.name for event in run.events] == ["batch"]


def test_without_a_parent_a_trace_begins(traced: tuple[Server, InMemorySpanExporter], connect: Any) -> None:
    server, memory = traced
    memory.clear()
    for parent in ("", "nonsense", f"00-{'0' * 32}-{PARENT}-01"):
        assert ask(server, connect, inputs(1), **({"traceparent": parent} if parent else {})) == 200
    whole = [span for span in memory.get_finished_spans() if span.name == "infer mlp"]
    assert len({span.context.trace_id for span in whole}) == 3 and all(span.parent is None for span in whole)


def test_who_is_not_sampled_leaves_no_spans(traced: tuple[Server, InMemorySpanExporter], connect: Any) -> None:
    server, memory = traced
    memory.clear()
    assert ask(server, connect, inputs(1), traceparent=f"00-{TRACE}-{PARENT}-00") == 200
    assert not memory.get_finished_spans()


def test_a_refusal(traced: tuple[Server, InMemorySpanExporter], connect: Any) -> None:
    server, memory = traced
    memory.clear()
    assert ask(server, connect, {"inputs": []}, traceparent=f"00-{TRACE}-{PARENT}-01") == 400
    (span,) = memory.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.status.status_code is StatusCode.ERROR and "input 'x' is missing" in str(span.status.description)
    assert span.attributes and span.attributes["http.response.status_code"] == 400


def test_grpcs_metadata_carries_a_trace_as_well(traced: tuple[Server, InMemorySpanExporter]) -> None:
    client = pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
    server, memory = traced
    memory.clear()
    entry = client.InferInput("x", [2, 64], "FP32")
    entry.set_data_from_numpy(np.ones((2, 64), np.float32))
    with client.InferenceServerClient(f"127.0.0.1:{server.port}") as asking:
        asking.infer("mlp", [entry], headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    *children, whole = memory.get_finished_spans()
    assert f"{whole.context.trace_id:032x}" == TRACE and whole.parent and f"{whole.parent.span_id:016x}" == PARENT
    assert [child.name for child in children] == STAGES and whole.attributes and whole.attributes["ox.rows"] == 2


def test_a_model_that_comes_later_is_traced(build: Any, connect: Any, tmp_path: Path) -> None:
    def write(name: str) -> None:
        kind = (TensorProto.FLOAT, ["batch", 64])
        build(name, [("Neg", ["x"], ["y"], {})], {"x": kind}, {"y": kind}, folder=tmp_path)

    write("first")
    spans, memory = span_memory()
    often = RequestLimits(poll_s=0.01)
    with Server([tmp_path], options=ModelConfig(device="cpu", instances=1), limits=often) as server:
        server.service.telemetry.trace(spans)
        write("mlp")
        wait_until(lambda: len(server.models) == 2)  # the disk is looked at
        assert ask(server, connect, inputs(1)) == 200
    assert "infer mlp" in [span.name for span in memory.get_finished_spans()]


def test_off_there_is_no_tracer(server: Server) -> None:
    assert all(model.stages.tracer is None for model in server.models)


def test_without_the_extra(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ArgumentError, match="traces need OpenTelemetry") as caught, Server([mlp], trace=True):
        pass
    assert install_command("otel") in str(caught.value)


def test_spans_reach_a_collector(mlp: Path, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it: the environment's variables, OTLP over HTTP, what waits is sent at the end."""
    posted: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        Thread(target=collector.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=here")
        with Server([mlp], options=ModelConfig(device="cpu", instances=1), trace=True) as server:
            assert ask(server, connect, inputs(1), traceparent=f"00-{TRACE}-{PARENT}-01") == 200
        collector.shutdown()
    ((path, body),) = posted
    assert path == "/v1/traces" and bytes.fromhex(TRACE) in body and b"infer mlp" in body
    assert b"\x02ox" in body and b"here" in body  # service.name, and what the environment added


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, expected in (("", "ox"), ("shop", "shop")):
        monkeypatch.setenv("OTEL_SERVICE_NAME", name)
        made = provider()
        assert made.resource.attributes["service.name"] == expected
        made.shutdown()
