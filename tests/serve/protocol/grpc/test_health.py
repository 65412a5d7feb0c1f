"""gRPC's health checking, with the stubs that others generate, over both transports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ox.serve import Server

health = pytest.importorskip("grpc_health.v1.health_pb2", reason="grpcio-health-checking is not installed")
stubs = pytest.importorskip("grpc_health.v1.health_pb2_grpc", reason="grpcio-health-checking is not installed")
SERVING, NOT_SERVING, UNKNOWN = 1, 2, 3


@pytest.fixture
def stub(wire: Any) -> Any:
    return stubs.HealthStub(wire.channel)


def ask(name: str = "") -> Any:
    return health.HealthCheckRequest(service=name)


@pytest.mark.parametrize("name", ["", "inference.GRPCInferenceService", "grpc.health.v1.Health", "mlp"])
def test_check(stub: Any, name: str) -> None:
    assert stub.Check(ask(name), timeout=300).status == SERVING


def test_check_of_what_is_not_there(stub: Any, wire: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(ask("nope"), timeout=300)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "there is no service or model 'nope'"
    with pytest.raises(grpc.RpcError) as caught:
        wire.method("/grpc.health.v1.Health/Check")(b"\x0a\x05x", timeout=300)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_watch_sees_a_model_come_and_go(stub: Any, wire: Any) -> None:
    states: Iterator[Any] = stub.Watch(ask("brain"), timeout=300)
    assert next(states).status == SERVING
    wire.call("RepositoryModelLoad", model_name="mixed")  # what happens to others is not told
    wire.call("RepositoryModelUnload", model_name="brain")
    assert next(states).status == NOT_SERVING
    wire.call("RepositoryModelLoad", model_name="brain")
    assert next(states).status == SERVING
    states.cancel()  # type: ignore[attr-defined]
    unknown = stub.Watch(ask("nope"), timeout=300)
    assert next(unknown).status == UNKNOWN
    unknown.cancel()


def test_watch_takes_one_message(wire: Any) -> None:
    call = wire.stream("/grpc.health.v1.Health/Watch")(iter([b"", b""]), timeout=300)
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_watching_ends_when_the_server_drains(mlp: Path, transport: str, dial: Callable[[str], Any]) -> None:
    with Server([mlp], grpc=transport, grpc_port=0) as server:
        wire = dial(f"127.0.0.1:{server.grpc_port}")
        states = stubs.HealthStub(wire.channel).Watch(ask(), timeout=300)
        assert next(states).status == SERVING
    assert [each.status for each in states] == [NOT_SERVING]
    assert states.code() == grpc.StatusCode.OK
    wire.channel.close()
