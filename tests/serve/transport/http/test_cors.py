"""CORS: pages of allowed origins read every response; the pages of others read nothing, and need not be named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.access import keyfile
from ox.serve.access.key import Key, digest_of
from ox.serve.transport.http.cors import Cors

PAGE, OTHER = "https://example.org", "https://other.example"
KEY = {"authorization": "Bearer ox_alice"}
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}).encode()


def preflight(origin: str, headers: str | None = "authorization,content-type", method: str = "POST") -> dict[str, str]:
    asked = {"origin": origin, "access-control-request-method": method}
    return asked if headers is None else {**asked, "access-control-request-headers": headers}


@pytest.fixture(scope="module")
def guarded(mlp: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    keyfile.write(keys, [Key("alice", digest_of(b"ox_alice"))])
    settings: dict[str, Any] = {"keys": keys, "allow_origin": [PAGE, "http://localhost:3000"]}
    limits = RequestLimits(body=1 << 16, linger_s=0.2)
    with Server([mlp], options=ModelConfig(instances=1), limits=limits, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def anybody(mlp: Path) -> Iterator[Server]:
    with Server([mlp], options=ModelConfig(instances=1), allow_origin="*", rate=1e6) as running:
        yield running


@pytest.fixture(scope="module")
def nobody(mlp: Path) -> Iterator[Server]:
    with Server([mlp], options=ModelConfig(instances=1)) as running:
        yield running


def shared(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("access-control-")}


TARGETS = ["/v2/models/mlp/infer", "/v1/chat/completions", "/metrics", "/nowhere", "/v2/repository/models/mlp/load"]


@rows("target", TARGETS)
def test_a_preflight_needs_no_key(guarded: Server, connect: Any, target: str) -> None:
    with connect(guarded) as client:
        status, headers, body = client.ask("OPTIONS", target, b"", preflight(PAGE))
    assert status == 200 and body == b""
    assert headers["access-control-allow-origin"] == PAGE and headers["access-control-max-age"] == "600"
    assert headers["access-control-allow-headers"] == "authorization,content-type"
    assert {"GET", "HEAD", "POST", "DELETE"} <= set(headers["access-control-allow-methods"].split(", "))
    assert "access-control-allow-credentials" not in headers


@rows(
    ("asked", "given"),
    [
        ("x-stainless-os, X-API-Key", "x-stainless-os, X-API-Key"),
        (None, None),
        ("", None),
        ("a b", None),
        ("a:b", None),
        (",", None),
    ],
)
def test_headers_that_a_page_may_send(guarded: Server, connect: Any, asked: str | None, given: str | None) -> None:
    with connect(guarded) as client:
        status, headers, _ = client.ask("OPTIONS", "/v2", b"", preflight(PAGE, asked))
        assert status == 200 and headers.get("access-control-allow-headers") == given


def test_a_preflight_of_another_origin(guarded: Server, connect: Any) -> None:
    with connect(guarded) as client:
        status, headers, body = client.ask("OPTIONS", "/v2", b"", preflight(OTHER))
        assert status == 403 and not shared(headers) and headers["vary"] == "origin"
        error = json.loads(body)["error"]
        assert "--allow-origin" in error and PAGE not in error
        body = client.ask("OPTIONS", "/v1/models", b"", preflight("null"))[2]
        assert "--allow-origin" in json.loads(body)["error"]["message"]


def test_what_is_not_a_preflight_needs_a_key(guarded: Server, connect: Any) -> None:
    with connect(guarded) as client:
        for headers in ({}, {"origin": PAGE}, {"access-control-request-method": "GET"}):
            assert client.ask("OPTIONS", "/v2/models/mlp", b"", headers)[0] == 401
        for method in ("GET", "POST"):
            assert client.ask(method, "/v2/models/mlp/infer", b"", preflight(PAGE))[0] == 401


CALLS = [
    ("GET", "/v2/health/live", b"", {}, 200),
    ("POST", "/v2/models/mlp/infer", BODY, KEY, 200),
    ("POST", "/v2/models/mlp/infer", BODY, {}, 401),
    ("POST", "/v2/models/mlp/infer", b"{", KEY, 400),
    ("POST", "/v2/models/other/infer", BODY, KEY, 404),
    ("GET", "/nowhere", b"", KEY, 404),
    ("DELETE", "/v2", b"", KEY, 405),
    ("POST", "/v1/chat/completions", b"{}", {}, 401),
    ("POST", "/v2/models/mlp/infer", bytes(1 << 17), KEY, 413),
]


@rows(("method", "target", "body", "key", "status"), CALLS)
def test_every_response_has_the_headers(
    guarded: Server, connect: Any, method: str, target: str, body: bytes, key: dict[str, str], status: int
) -> None:
    with connect(guarded) as client:
        got, headers, _ = client.ask(method, target, body, {"origin": PAGE, **key})
    exposed = headers["access-control-expose-headers"].split(", ")
    assert got == status and headers["access-control-allow-origin"] == PAGE and headers["vary"] == "origin"
    assert {"inference-header-content-length", "x-request-id", "retry-after"} <= set(exposed)


def test_other_origins_and_none(guarded: Server, connect: Any) -> None:
    """They get the response, which a browser does not show to the page; a cache must not mix them up."""
    with connect(guarded) as client:
        for origin in (OTHER, f"{PAGE}, {PAGE}", PAGE + ".", "null", None):
            sent = KEY if origin is None else {**KEY, "origin": origin}
            status, headers, _ = client.ask("POST", "/v2/models/mlp/infer", BODY, sent)
            assert status == 200 and not shared(headers) and headers["vary"] == "origin"
        headers = client.ask("GET", "/v2", b"", {**KEY, "origin": "http://localhost:3000"})[1]
        assert headers["access-control-allow-origin"] == "http://localhost:3000"


def test_any_origin(anybody: Server, connect: Any) -> None:
    with connect(anybody) as client:
        for origin in ({"origin": OTHER}, {"origin": "null"}, {}):
            status, headers, _ = client.ask("POST", "/v2/models/mlp/infer", BODY, origin)
            assert status == 200 and headers["access-control-allow-origin"] == "*" and "vary" not in headers
        status, headers, _ = client.ask("OPTIONS", "/v2/models/mlp/infer", b"", preflight(OTHER))
        assert status == 200 and headers["access-control-allow-headers"] == "authorization,content-type"
        # which is no permission to manage
        manage = "/v2/repository/models/mlp/load"
        assert client.ask("POST", manage, b"{}", {"origin": OTHER})[0] == 403


def test_off_by_default(nobody: Server, connect: Any) -> None:
    with connect(nobody) as client:
        for method, headers in (("GET", {"origin": PAGE}), ("OPTIONS", preflight(PAGE))):
            _, answered, _ = client.ask(method, "/v2/models/mlp", b"", headers)
            assert not shared(answered) and "vary" not in answered


def test_a_request_that_is_never_complete(guarded: Server, connect: Any) -> None:
    with connect(guarded) as client:
        client.send(b"GET / HTTP/1.1\r\nhost: x\r\norigin: %s\r\ncontent-length: x\r\n\r\n" % PAGE.encode())
        status, headers, _ = client.reply()
        assert status == 400 and headers["access-control-allow-origin"] == PAGE


def test_an_asgi_application(mlp: Path) -> None:
    async def body() -> list[Any]:
        server = Server([mlp], options=ModelConfig(instances=1), grpc="off", allow_origin=[PAGE])
        await server.start()
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/v2", "headers": [(b"origin", PAGE.encode())]}
        await server.asgi()(scope, receive, send)
        await server.stop()
        return sent

    head = asyncio.run(body())[0]
    assert head["status"] == 200 and (b"access-control-allow-origin", PAGE.encode()) in head["headers"]


def test_streams(listen: Any, connect: Any) -> None:
    def handle(exchange: Any) -> None:
        stream = exchange.stream_response(200, b"text/event-stream")
        stream.write(b"data: 1\n\n")
        stream.end()

    with listen(handle, cors=Cors([PAGE])) as plane, connect(plane) as client:
        client.send(b"GET /a HTTP/1.1\r\nhost: x\r\norigin: %s\r\n\r\n" % PAGE.encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.socket.recv(1 << 16)
        assert b"\r\naccess-control-allow-origin: %s\r\n" % PAGE.encode() in head and b"\r\nvary: origin\r\n" in head
