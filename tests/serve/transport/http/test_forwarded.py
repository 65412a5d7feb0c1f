"""The client's address: what trusted proxies report, and nothing that a client wrote itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.serve import ModelConfig, Server
from ox.serve.config.trusted_proxies import TrustedProxies
from ox.serve.telemetry.logs import LOGGER
from ox.serve.transport.http.forwarded import client_of

PROXIES = TrustedProxies(["10.0.0.0/8", "::1", "unix"])
PROXY = "10.0.0.1"


@rows(
    ("peer", "header", "client"),
    [
        (PROXY, "203.0.113.7", "203.0.113.7"),
        ("::1", "203.0.113.7", "203.0.113.7"),
        ("", "203.0.113.7", "203.0.113.7"),
        ("198.51.100.1", "203.0.113.7", "198.51.100.1"),  # not a proxy
        (PROXY, " 203.0.113.7 ", "203.0.113.7"),
        (PROXY, "203.0.113.7:4711", "203.0.113.7"),
        (PROXY, "2001:db8::7", "2001:db8::7"),
        (PROXY, "[2001:db8::7]:4711", "2001:db8::7"),
        (PROXY, "[2001:DB8::7]", "2001:db8::7"),
        (PROXY, "::ffff:203.0.113.7", "203.0.113.7"),
        (PROXY, "203.0.113.7, 10.0.0.2, 10.0.0.3", "203.0.113.7"),
        (PROXY, "192.0.2.1, 203.0.113.7, 10.0.0.2", "203.0.113.7"),  # the client wrote the first one
        (PROXY, "10.0.0.9, 203.0.113.7", "203.0.113.7"),
        (PROXY, "10.0.0.9, 10.0.0.2", "10.0.0.9"),  # all are proxies: the first one asks
        (PROXY, "203.0.113.7, unknown", PROXY),
        (PROXY, "fe80::1%a b", "fe80::1"),
        (PROXY, "203.0.113.7, unknown, 10.0.0.2", "10.0.0.2"),
        (PROXY, "", PROXY), (PROXY, "nonsense", PROXY), (PROXY, "203.0.113.7,", PROXY), (PROXY, "203.0.113.7:x", PROXY),
        (PROXY, "[2001:db8::7", PROXY), (PROXY, "[2001:db8::7]x", PROXY), (PROXY, "203.0.113.300", PROXY),
        (PROXY, ", ".join(["203.0.113.7", *["10.0.0.2"] * 1000]), "10.0.0.2"),
    ],
)  # fmt: skip
def test_x_forwarded_for(peer: str, header: str, client: str) -> None:
    assert client_of(peer, {b"x-forwarded-for": header.encode()}, PROXIES) == client


@rows(
    ("header", "client"),
    [
        ("for=203.0.113.7", "203.0.113.7"),
        ("For=203.0.113.7;proto=https;by=10.0.0.1", "203.0.113.7"),
        ('proto=https; for="203.0.113.7:4711" ;host=x', "203.0.113.7"),
        ('for="[2001:db8::7]:4711"', "2001:db8::7"),
        ('for="\\[2001:db8::7]"', "2001:db8::7"),
        ("for=192.0.2.1, for=203.0.113.7, for=10.0.0.2", "203.0.113.7"),
        ('for=192.0.2.1;by="a, for=1.2.3.4", for=203.0.113.7', "203.0.113.7"),
        ("for=203.0.113.7, proto=https", PROXY),
        ("for=unknown", PROXY), ("for=_hidden", PROXY), ("for=", PROXY), ("", PROXY), ("203.0.113.7", PROXY),
        ('for="203.0.113.7', PROXY), ("for=203.0.113.7 nonsense", PROXY), ("for=[::1]", PROXY),
        ("for=203.0.113.7, nonsense", PROXY),
    ],
)  # fmt: skip
def test_forwarded(header: str, client: str) -> None:
    assert client_of(PROXY, {b"forwarded": header.encode()}, PROXIES) == client


@rows(
    ("one", "other", "client"),
    [
        ("203.0.113.7", "for=203.0.113.7", "203.0.113.7"),
        ("203.0.113.7", "for=203.0.113.8", PROXY),  # one of them is the client's own
        ("203.0.113.7", "nonsense", PROXY),
    ],
)
def test_two_headers_must_agree(one: str, other: str, client: str) -> None:
    assert client_of(PROXY, {b"x-forwarded-for": one.encode(), b"forwarded": other.encode()}, PROXIES) == client


@rows(
    ("settings", "statuses", "clients"),
    [
        ({"forwarded_allow_ips": "127.0.0.0/8"}, [200, 429, 200], ["203.0.113.7", "203.0.113.7", "203.0.113.8"]),
        ({}, [200, 429, 429], ["127.0.0.1"] * 3),
    ],
)
def test_rate_limits_and_the_access_log(
    mlp: Path, connect: Any, caplog: Any, settings: dict[str, Any], statuses: list[int], clients: list[str]
) -> None:
    caplog.clear()
    LOGGER.addHandler(caplog.handler)
    server = Server([mlp], options=ModelConfig(instances=1), rate=0.001, access_log=True, **settings)
    try:
        with server, connect(server) as client:
            for number, status in zip((7, 7, 8), statuses, strict=True):
                assert client.ask("GET", "/v2", b"", {"x-forwarded-for": f"203.0.113.{number}"})[0] == status
        assert [record.fields["peer"] for record in caplog.records if record.msg == "request"] == clients
    finally:
        LOGGER.removeHandler(caplog.handler)


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_grpc(mlp: Path, transport: str) -> None:
    grpc = pytest.importorskip("grpc", reason="gRPC is not installed")
    settings: dict[str, Any] = {"grpc": transport, "grpc_port": 0, "rate": 0.001, "forwarded_allow_ips": "127.0.0.1"}
    options = ModelConfig(instances=1)
    with Server([mlp], options=options, **settings) as server, grpc.insecure_channel(address_of(server)) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")
        for address in ("203.0.113.7", "203.0.113.8"):
            call(b"", metadata=[("x-forwarded-for", address)], timeout=120)
            with pytest.raises(grpc.RpcError) as caught:
                call(b"", metadata=[("x-forwarded-for", address)], timeout=120)
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def address_of(server: Server) -> str:
    return f"127.0.0.1:{server.grpc_port}"


def test_json_of_settings() -> None:
    """Worker processes get the settings as JSON."""
    from ox.serve.config.model_config import ModelConfig as Options
    from ox.serve.config.request_limits import RequestLimits
    from ox.serve.config.server_config import ServerConfig
    from ox.serve.workers.worker_config import WorkerConfig

    settings = ServerConfig(allow_origin=["http://a"], root_path="/a", forwarded_allow_ips="::1", proxy_protocol=True)
    config = WorkerConfig(["a.onnx"], Options(), RequestLimits(), settings)
    assert WorkerConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
