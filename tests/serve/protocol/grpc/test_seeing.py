"""What is counted, logged and traced of calls over gRPC, over both transports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from span_memory import span_memory

from ox.serve import Server
from ox.serve.telemetry.logs import Log

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_the_access_log(
    mlp: Path, transport: str, dial: Callable[[str], Any], ones: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    with (tmp_path / "lines").open("w") as stream:
        monkeypatch.setattr("ox.serve.telemetry.telemetry.Log", lambda form, level: Log(form, level, stream))
        with Server([mlp], grpc=transport, grpc_port=0, log="json", access_log=True) as server:
            wire = dial(f"127.0.0.1:{server.grpc_port}")
            metadata = [("x-request-id", "mine"), ("traceparent", f"00-{TRACE}-{PARENT}-01")]
            wire.call("ModelInfer", ones().SerializeToString(), metadata=metadata)
            wire.refused("ModelMetadata", name="nope")
            list(wire.stream()(iter([ones().SerializeToString()] * 3), timeout=300))
            wire.channel.close()
            assert server.answers == 3
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    calls = [line for line in lines if line.get("method") == "gRPC"]
    path = "/inference.GRPCInferenceService/"
    assert [(line["target"], line["code"]) for line in calls] == [
        (f"{path}ModelInfer", 0),
        (f"{path}ModelMetadata", 5),
        (f"{path}ModelStreamInfer", 0),
    ]
    assert (calls[0]["request_id"], calls[0]["trace_id"], calls[0]["peer"]) == ("mine", TRACE, "127.0.0.1")
    assert all(line["ms"] > 0 for line in calls)


def test_statistics_and_metrics(grpc_server: Server, wire: Any, ones: Any, connect: Any) -> None:
    model = next(model for model in grpc_server.models if model.name == "mlp")
    stages = model.stages
    before, failed = stages.request.count, sum(stages.failures.values())
    wire.call("ModelInfer", ones().SerializeToString())
    wire.refused("ModelInfer", ones(outputs=[{"name": "z"}]).SerializeToString())
    wire.refused("ModelInfer", ones(raw_input_contents=[bytes(8)]).SerializeToString())
    list(wire.stream()(iter([ones().SerializeToString(), ones(inputs=[]).SerializeToString()]), timeout=300))
    assert stages.request.count == before + 2 and sum(stages.failures.values()) == failed + 3
    with connect(grpc_server) as client:
        text = client.ask("GET", "/metrics")[2].decode()
    assert 'ox_rpcs_total{code="0"}' in text and 'ox_rpcs_total{code="3"}' in text


def test_a_request_that_is_late_is_one_failure(grpc_server: Server, wire: Any, ones: Any) -> None:
    stages = next(model for model in grpc_server.models if model.name == "mlp").stages
    before = dict(stages.failures)
    code, _ = wire.refused("ModelInfer", ones(parameters={"timeout": {"int64_param": 1}}).SerializeToString())
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert stages.failures == before | {"REJECTED": before["REJECTED"] + 1}


def test_a_client_that_cancels_is_counted(grpc_server: Server, wire: Any, ones: Any, held: Any) -> None:
    stages = next(model for model in grpc_server.models if model.name == "mlp").stages
    before = stages.failures["CANCELED"]
    call = wire.method("ModelInfer").future(ones().SerializeToString())
    held.wait(1)
    call.cancel()
    assert held.abandoned(1)
    assert stages.failures["CANCELED"] == before + 1


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_a_span(mlp: Path, transport: str, dial: Callable[[str], Any], ones: Any) -> None:
    provider, memory = span_memory()
    with Server([mlp], grpc=transport, grpc_port=0) as server:
        server.service.telemetry.trace(provider)
        wire = dial(f"127.0.0.1:{server.grpc_port}")
        parent = [("traceparent", f"00-{TRACE}-{PARENT}-01")]
        wire.call("ModelInfer", ones().SerializeToString(), metadata=parent)
        with pytest.raises(grpc.RpcError):
            wire.call("ModelInfer", ones(inputs=[]).SerializeToString(), metadata=parent)
        wire.channel.close()
    spans = [span for span in memory.get_finished_spans() if span.name == "infer mlp"]
    assert [f"{span.context.trace_id:032x}" for span in spans] == [TRACE, TRACE]
    assert [span.status.is_ok for span in spans] == [True, False] or spans[1].status.description
