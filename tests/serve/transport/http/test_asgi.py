"""The server as an ASGI application: the same answers as over a socket, and the same limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import give_way

from ox.clock import SYSTEM
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.access import keyfile
from ox.serve.access.key import Key, digest_of
from ox.serve.transport.http import Exchange, ListenerState
from ox.serve.transport.http.asgi import AsgiApplication

BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}).encode()
INFER = "/v2/models/mlp/infer"


class Client:
    """Calls an application as an ASGI server does."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, parts: int = 1,
    ) -> tuple[int, dict[bytes, bytes], bytes]:  # fmt: skip
        path, _, query = path.partition("?")
        fields = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "client": ("::1", 1),
                 "query_string": query.encode(), "headers": fields}  # fmt: skip
        size = -(-len(body) // parts) or 1
        pieces = [body[start : start + size] for start in range(0, max(len(body), 1), size)]
        events = [{"type": "http.request", "body": piece, "more_body": piece is not pieces[-1]} for piece in pieces]
        sent: list[Any] = []

        async def receive() -> Any:
            if events:
                return events.pop(0)
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await asyncio.wait_for(self.app(scope, receive, send), 60)
        head, content = sent
        return head["status"], dict(head["headers"]), content["body"]


@pytest.fixture
def run(mlp: Path) -> Callable[..., None]:
    """Runs a function with a client of a server and the server."""

    def run(work: Callable[[Client, Server], Awaitable[None]], **settings: Any) -> None:
        async def body() -> None:
            server = Server([mlp], options=ModelConfig(device="cpu", instances=1), grpc="off", **settings)
            await server.start()
            try:
                await work(Client(server.asgi()), server)
            finally:
                await server.stop()

        asyncio.run(body())

    return run


def test_inference(run: Callable[..., None]) -> None:
    async def work(client: Client, server: Server) -> None:
        status, headers, body = await client("POST", INFER, BODY, {"content-type": "application/json"}, parts=3)
        (output,) = json.loads(body)["outputs"]
        assert status == 200 and output["shape"] == [1, 10]
        assert headers[b"content-length"] == b"%d" % len(body) and headers[b"content-type"] == b"application/json"
        assert server.replies[200] == 1

    run(work)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v2", b"", 200),
        ("GET", "/v2/models/mlp", b"", 200),
        ("GET", "/v2/models/other", b"", 404),
        ("GET", "/v2/repository/index?ready=true", b"", 405),
        ("POST", INFER, b"{", 400),
        ("PUT", INFER, BODY, 405),
        ("POST", INFER, b" " * 5000, 413),
        ("GET", "/" + "x" * 5000, b"", 414),
    ],
)
def test_statuses(method: str, path: str, body: bytes, status: int, run: Callable[..., None]) -> None:
    async def work(client: Client, server: Server) -> None:
        got, _, answer = await client(method, path, body, parts=2)
        assert got == status
        assert got == 200 or json.loads(answer)["error"]
        assert server._listener_state.buffered == 0

    run(work, limits=RequestLimits(body=4096, url=4096, json=4096))


def test_keys(run: Callable[..., None], tmp_path: Path) -> None:
    """Access control reads the headers."""
    keyfile.write(tmp_path / "keys.toml", [Key("alice", digest_of(b"ox_alice"))])

    async def work(client: Client, server: Server) -> None:
        assert (await client("POST", INFER, BODY))[0] == 401
        status, _, _ = await client("POST", INFER, BODY, {"authorization": "Bearer ox_alice"})
        assert status == 200

    run(work, keys=tmp_path / "keys.toml")


def test_head(run: Callable[..., None]) -> None:
    async def work(client: Client, server: Server) -> None:
        status, headers, body = await client("HEAD", "/v2")
        assert status == 200 and body == b"" and int(headers[b"content-length"]) > 0

    run(work)


def test_a_client_that_goes_abandons_its_request(run: Callable[..., None]) -> None:
    async def work(client: Client, server: Server) -> None:
        (model,) = server.models
        model.inline = False
        model.batcher.submit = lambda job: None  # type: ignore[method-assign]  # it never runs
        sent: list[Any] = []
        events = [{"type": "http.request", "body": BODY}, {"type": "http.disconnect"}]

        async def receive() -> Any:
            return events.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": INFER, "headers": [], "query_string": b""}
        await asyncio.wait_for(client.app(scope, receive, send), 60)
        assert sent == []
        assert sum(model.stages.failures.values()) == 1

    run(work)


def test_lifespan(run: Callable[..., None]) -> None:
    async def work(client: Client, server: Server) -> None:
        events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        sent: list[str] = []

        async def receive() -> Any:
            return events.pop(0)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await client.app({"type": "lifespan"}, receive, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        with pytest.raises(ValueError, match="websocket"):
            await client.app({"type": "websocket"}, receive, send)

    run(work)


def test_a_response_in_parts() -> None:
    streams: list[Any] = []
    flows: list[bool] = []
    left: list[bool] = []

    def handle(exchange: Exchange) -> None:
        stream = exchange.stream_response(200, b"text/event-stream", b"x-extra: 1\r\n")
        stream.on_flow, stream.on_cancel = flows.append, lambda: left.append(True)
        streams.append(stream)

    async def call(leave: bool) -> list[Any]:
        sent: list[Any] = []
        gone, taken = asyncio.Event(), asyncio.Event()
        taken.set()
        begun = asyncio.Event()
        app = AsgiApplication(ListenerState(handle, RequestLimits(), clock=SYSTEM))

        async def receive() -> Any:
            if not streams:
                return {"type": "http.request", "body": b""}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await taken.wait()
            sent.append(message)
            begun.set()

        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        serving = asyncio.ensure_future(app(scope, receive, send))
        await begun.wait()
        taken.clear()
        streams[0].write(b"one")
        await give_way(100)
        streams[0].write(b"x" * 100_000)
        assert flows == [True]
        if leave:
            gone.set()
        else:
            taken.set()
            await give_way(100)
            assert sent[-1]["more_body"] and not serving.done()  # all parts are taken: the end alone wakes it
            streams[0].end()
        await asyncio.wait_for(serving, 60)
        return sent

    sent = asyncio.run(call(leave=False))
    assert (b"x-extra", b"1") in sent[0]["headers"] and flows == [True, False] and not left
    assert b"".join(message["body"] for message in sent[1:]) == b"one" + b"x" * 100_000
    assert [message["more_body"] for message in sent[1:]][-1] is False
    streams.clear()
    flows.clear()
    asyncio.run(call(leave=True))
    assert left == [True]
