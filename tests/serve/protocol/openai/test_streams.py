"""Streams of events on the wire: their ends, errors in the middle, clients that leave or read slowly."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manual_clock import ManualClock, pass_time, run_jumping
from rows import rows
from waiting import wait_until

from ox.errors import ServeError
from ox.serve import ModelConfig, Server
from ox.serve.generation.engine import GenerationEngine
from ox.serve.protocol.text import event_stream
from ox.serve.protocol.text.event_stream import Heartbeats
from ox.serve.protocol.text.text_job import TextJob

ASK: dict[str, Any] = {"model": "tiny", "prompt": "the cat", "stream": True, "temperature": 0, "ignore_eos": True}
LONG = {**ASK, "max_tokens": 200}


@pytest.fixture
def post() -> Iterator[Any]:
    """Sends a request; gives the response without its body."""
    connections = []

    def send(server: Server, body: dict[str, Any], path: str = "/v1/completions") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connections.append(connection)
        connection.request("POST", path, json.dumps(body))
        return connection.getresponse()

    yield send
    for connection in connections:
        connection.close()


def engine_of(server: Server) -> GenerationEngine:
    engine = server.models[0].generation
    assert engine is not None
    return engine


def idle(server: Server) -> bool:
    stats = engine_of(server).stats()
    return not stats["running"] and not stats["waiting"]


def test_the_events(post: Any, server: Server) -> None:
    response = post(server, {**ASK, "max_tokens": 5})
    assert response.status == 200 and response.getheader("content-type") == "text/event-stream; charset=utf-8"
    assert response.getheader("cache-control") == "no-cache"
    *events, end, rest = response.read().split(b"\n\n")
    assert end == b"data: [DONE]" and rest == b"" and all(event.startswith(b"data: {") for event in events)
    documents = [json.loads(event.removeprefix(b"data: ")) for event in events]
    assert documents[-1]["choices"][0]["finish_reason"] == "length"


def test_an_error_before_the_first_token_has_a_status(
    post: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: Any, request: Any, on_event: Any, on_error: Any, loop: Any = None) -> Any:
        handle = submit(self, request, lambda event: None, on_error, loop)
        loop.call_soon(on_error, ServeError("too late", status=504))
        return handle

    submit = GenerationEngine.submit
    monkeypatch.setattr(GenerationEngine, "submit", failing)
    response = post(server, {**ASK, "max_tokens": 5})
    assert response.status == 504 and json.loads(response.read())["error"]["message"] == "too late"
    wait_until(lambda: idle(server))


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves(server: Server, stream: bool, hold_steps: Any) -> None:
    steps = hold_steps(TextJob, "abandon")
    client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    body = json.dumps({**LONG, "stream": stream}).encode()
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    wait_until(lambda: not idle(server))
    if stream:
        assert client.recv(100)
    client.close()
    wait_until(lambda: idle(server))
    assert len(steps) < 10  # it did not make the whole text


@rows(
    ("target", "body", "comments", "begin", "end"),
    [
        ("/v1/completions", {**ASK, "max_tokens": 5}, b": \n\n: \n\n", b"data: {", b"data: [DONE]\n\n"),
        ("/api/generate", {"model": "tiny", "prompt": "a", "raw": True}, b"  ", b'{"model"', b"}\n"),
    ],
)
def test_heartbeats(
    decoder: Path, monkeypatch: pytest.MonkeyPatch, target: str, body: Any, comments: bytes, begin: bytes, end: bytes
) -> None:
    """While no token comes, comments do; in a stream of JSON lines blanks."""
    clock, timed, submit = ManualClock(), threading.Semaphore(0), GenerationEngine.submit

    def telling(real: Any) -> Any:
        """That the timer is set."""
        return lambda *arguments: (real(*arguments), timed.release())

    monkeypatch.setattr(Heartbeats, "add", telling(Heartbeats.add))
    monkeypatch.setattr(Heartbeats, "_beat", telling(Heartbeats._beat))

    def held(self: Any, *arguments: Any) -> Any:
        handle = submit(self, *arguments)
        handle.pause()
        handles.append(handle)
        return handle

    handles: list[Any] = []
    monkeypatch.setattr(GenerationEngine, "submit", held)
    options = ModelConfig(threads=1, deadline_ms=3 * 1000 * event_stream.HEARTBEAT_S)
    with Server([decoder], options=options, clock=clock) as server, clock:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", target, json.dumps(body))
        for _ in range(2):
            assert timed.acquire(timeout=120)
            clock.advance(event_stream.HEARTBEAT_S)
        response = connection.getresponse()
        assert response.read(len(comments)) == comments
        handles[0].resume()
        rest = response.read()
        assert rest.startswith(begin) and rest.endswith(end)
        connection.close()


def test_heartbeats_of_many_streams_leave_time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "AT_ONCE", 2)
    order: list[str] = []

    class Silent:
        silent = True

        def heartbeat(self) -> None:
            order.append("stream")

    async def rounds() -> None:
        loop = asyncio.get_running_loop()
        heartbeats = Heartbeats(loop, 0.01)
        streams: list[Any] = [Silent() for _ in range(5)]
        for stream in streams:
            heartbeats.add(stream)
        while order.count("stream") < 10:  # two rounds
            order.append("other")
            await pass_time(0.001)
        for stream in streams:
            heartbeats.remove(stream)

    run_jumping(rounds())
    assert "stream stream stream" not in " ".join(order)


def test_a_slow_reader_pauses_its_text(post: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its events fill the buffers of the client, which does not read; another client is unharmed."""
    pauses: list[bool] = []
    set_paused = TextJob.set_paused

    def noted(self: Any, paused: bool) -> None:
        pauses.append(paused)
        set_paused(self, paused)

    monkeypatch.setattr(TextJob, "set_paused", noted)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.settimeout(60)
    client.connect(("127.0.0.1", server.port))
    body = json.dumps({**LONG, "n": 32, "logprobs": 20}).encode()
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    wait_until(lambda: True in pauses)
    assert post(server, {**ASK, "max_tokens": 5}).read().endswith(b"data: [DONE]\n\n")
    received = b""
    while not received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
        part = client.recv(1 << 16)
        assert part
        received = received[-100:] + part
    assert False in pauses
    client.close()
    wait_until(lambda: idle(server))


def test_the_drain_finishes_what_runs(post: Any, decoder: Path) -> None:
    with Server([decoder], options=ModelConfig(threads=1)) as server:
        response = post(server, LONG)
        first = response.read(10)
    assert (first + response.read()).endswith(b"data: [DONE]\n\n")


def test_the_drain_ends_what_takes_too_long(post: Any, decoder: Path, hold_steps: Any) -> None:
    clock = ManualClock()
    with Server([decoder], options=ModelConfig(threads=1), clock=clock) as server, clock:
        engine = engine_of(server)
        hold_steps(GenerationEngine, "stop")
        response = post(server, LONG)
        response.read(10)
    with response, pytest.raises((http.client.IncompleteRead, ConnectionError)):
        response.read()
    assert engine.stats()["running"] == 0


def test_more_clients_than_the_queue_holds(decoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that do not fit are told so at once; the others get their texts."""
    step = GenerationEngine._step
    with Server([decoder], options=ModelConfig(threads=1, max_queue=40)) as server:
        body = json.dumps({**ASK, "max_tokens": 3}).encode()
        request = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(
            body
        )
        going = threading.Event()
        monkeypatch.setattr(GenerationEngine, "_step", lambda self: going.wait(60) and step(self))
        clients = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(300)]
        for client in clients:
            client.sendall(request + body)
        wait_until(lambda: server.replies[503] >= 200)
        going.set()
        answers = [b"".join(iter(lambda client=client: client.recv(1 << 16), b"")) for client in clients]  # type: ignore[misc]
        for client in clients:
            client.close()
        done = [answer for answer in answers if answer.startswith(b"HTTP/1.1 200")]
        refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503")]
        assert len(done) + len(refused) == 300 and len(done) >= 40 and refused
        assert all(b"data: [DONE]" in answer for answer in done)
        assert all(b"retry-after:" in answer and b'"code":"server_overloaded"' in answer for answer in refused)
        assert idle(server)
