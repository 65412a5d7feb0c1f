"""What clients do to a socket: pipelining, halves, floods, smuggling. Nobody else may notice."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from manual_clock import ManualClock
from waiting import wait_until

from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.transport.http import Exchange
from ox.serve.transport.http.connection import Connection

INFER = b"/v2/models/mlp/infer"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n"
SWEEP_S = 1.0  # the most that the server takes to notice that a time is over


def post(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in (b"host: x", *headers))
    return b"POST %s HTTP/1.1\r\n%scontent-length: %d\r\n\r\n%s" % (INFER, lines, len(body), body)


def body_for(value: float, identifier: str = "") -> bytes:
    entry = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [value] * 64}
    return json.dumps({"id": identifier, "inputs": [entry]}).encode()


@pytest.fixture(autouse=True)
def others_are_served(server: Server, connect: Any) -> Any:
    yield
    with connect(server) as client:
        client.send(LIVE)
        assert client.reply()[0] == 200


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: Any) -> dict[str, str]:
    """The settings of a server behind TLS, whose transports differ."""
    folder: Path = tmp_path_factory.mktemp("tls")
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ox")])
    now, made = datetime.now(UTC), x509.CertificateBuilder().subject_name(name).issuer_name(name)
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    (folder / "crt").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    plain, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, plain, none))
    return {"tls_cert": str(folder / "crt"), "tls_key": str(folder / "key")}


class Timed:
    """A connection to a server whose time passes where a test says so."""

    def __init__(self, server: Server, client: Any) -> None:
        self.server, self.limits = server, server.limits
        self.send, self.reply, self._client = client.send, client.reply, client

    def connections(self, wanted: Callable[[set[Any]], Any] = set) -> Any:
        """What is `wanted` of the server's connections, on its loop, once that has done what it was at."""

        async def on_loop() -> Any:
            return wanted(self.server._listener_state.connections)

        return asyncio.run_coroutine_threadsafe(on_loop(), self.server._loop).result(120)

    def passes(self, seconds: float) -> None:
        self.connections()
        self.server.clock.advance(seconds)  # type: ignore[attr-defined]

    def closed(self) -> bool:
        """Whether the server closes the connection, as soon as it has lingered."""
        self.passes(self.limits.linger_s + SWEEP_S)
        return bool(self._client.closed())


@pytest.fixture(scope="session", params=["plain", "tls"])
def manual(request: Any, mlp: Any, server: Server, certificate: dict[str, str]) -> Iterator[Server]:
    settings: dict[str, Any] = certificate if request.param == "tls" else {}
    options, limits, clock = ModelConfig(instances=1), server.limits, ManualClock()
    with Server([mlp], options=options, limits=limits, clock=clock, **settings) as running, clock:
        yield running


@pytest.fixture
def timed(manual: Server, connect: Any) -> Iterator[Timed]:
    with connect(manual) as client:
        if manual._tls is not None:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            client.socket = context.wrap_socket(client.socket)
        yield Timed(manual, client)


def test_keep_alive_and_pipelining_in_order(client: Any) -> None:
    count = 200
    stream = b"".join(
        post(body_for(n, str(n))) if n % 3 else b"GET /nope/%d HTTP/1.1\r\nhost: x\r\n\r\n" % n for n in range(count)
    )
    client.send(stream)
    for n in range(count):
        status, _, body = client.reply()
        if n % 3:
            assert status == 200 and json.loads(body)["id"] == str(n)
        else:
            assert status == 404 and f"/nope/{n}" in json.loads(body)["error"]


def test_byte_by_byte(client: Any) -> None:
    for byte in post(body_for(1, "slow"))[:60]:
        client.send(bytes([byte]))
    client.send(post(body_for(1, "slow"))[60:])
    assert json.loads(client.reply()[2])["id"] == "slow"


def test_chunked(client: Any) -> None:
    body = body_for(0.5, "chunks")
    head = b"POST %s HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" % INFER
    pieces = [body[i : i + 50] for i in range(0, len(body), 50)]
    client.send(head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\nx-trailer: 1\r\n\r\n" + LIVE)
    assert json.loads(client.reply()[2])["id"] == "chunks"
    assert client.reply()[0] == 200


def test_expect_continue(client: Any) -> None:
    request = post(body_for(1), b"expect: 100-continue")
    head, _, body = request.partition(b"\r\n\r\n")
    client.send(head + b"\r\n\r\n")
    assert client.reply()[0] == 100
    client.send(body)
    assert client.reply()[0] == 200
    client.send(post(b"{}", b"expect: a miracle"))
    assert client.reply()[0] == 417


def test_http_1_0_closes(client: Any) -> None:
    client.send(b"GET /v2 HTTP/1.0\r\n\r\n")
    status, headers, _ = client.reply()
    assert status == 200 and headers["connection"] == "close" and client.closed()


def test_half_closed_client_gets_its_answer(client: Any) -> None:
    client.send(post(body_for(1)))
    client.socket.shutdown(socket.SHUT_WR)
    assert client.reply()[0] == 200 and client.closed()


def test_a_half_closed_client_that_waits_is_closed_after_its_answer(listen: Any, connect: Any) -> None:
    waiting: list[Exchange] = []
    with listen(waiting.append) as plane, connect(plane) as client:
        client.send(LIVE)
        client.socket.shutdown(socket.SHUT_WR)
        with connect(plane) as other:  # by the time that this one is known, the end of that one has been seen
            other.send(LIVE)
            wait_until(lambda: len(waiting) == 2)
            plane.on_loop(lambda: None)
            plane.on_loop(lambda: [exchange.reply(200, b"late") for exchange in waiting])
            assert client.reply()[2] == b"late" and client.closed()
            assert other.reply()[2] == b"late"


@pytest.mark.parametrize("cut", [-20, 30])
def test_half_a_request_and_no_more(client: Any, server: Server, cut: int) -> None:
    client.send(post(body_for(1, "whole")) + post(body_for(1))[:cut])
    client.socket.shutdown(socket.SHUT_WR)
    assert json.loads(client.reply()[2])["id"] == "whole"
    status, headers, body = client.reply()
    assert status == 400 and b"is incomplete" in body and client.closed()
    assert headers["connection"] == "close" and (b"bytes of a body" if cut < 0 else b"a part of the headers") in body


def test_half_a_body(timed: Timed) -> None:
    timed.send(post(body_for(1))[:-20])
    wait_until(lambda: timed.connections(lambda them: any(each.receiving for each in them)))
    timed.passes(timed.limits.request_s + SWEEP_S)
    status, headers, body = timed.reply()
    assert status == 408 and headers["connection"] == "close" and b"in time" in body and timed.closed()


def test_half_a_head_drop_by_drop(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dripping does not extend the time: the client still drips, its head is far from full."""
    came, receive = threading.Semaphore(0), Connection.data_received
    before = timed.server._listener_state.replies[408]

    def told(self: Connection, data: bytes) -> None:
        receive(self, data)
        came.release()

    monkeypatch.setattr(Connection, "data_received", told)
    for drop in (b"GET / HTTP/1.1\r\nx-a: ", *[b"b"] * 9):
        timed.send(drop)
        assert came.acquire(timeout=120)
        timed.passes(timed.limits.request_s / 10)
    assert timed.server._listener_state.replies[408] == before
    timed.send(b"b")
    assert came.acquire(timeout=120)
    timed.passes(SWEEP_S)
    assert timed.reply()[0] == 408 and timed.closed()


def test_idle_connection_is_closed(timed: Timed) -> None:
    timed.send(LIVE)
    assert timed.reply()[0] == 200
    timed.passes(timed.limits.idle_s)
    assert timed.closed()


def test_client_that_vanishes(server: Server, connect: Any) -> None:
    for cut in (1, 30, 90, 400):
        with connect(server) as client:
            client.send(post(body_for(1))[:cut])
    with connect(server) as client:
        client.send(post(body_for(1)) * 50)


GET, POST = (method + b" / HTTP/1.1\r\nhost: x\r\n" for method in (b"GET", b"POST"))
CHUNKED = POST + b"transfer-encoding: chunked\r\n"
REFUSED = [
    ("both lengths", POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("both, reversed", CHUNKED + b"content-length: 5\r\n\r\n0\r\n\r\n", 400),
    ("two lengths", POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello", 400),
    ("two equal lengths", POST + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello", 400),
    ("length +5", POST + b"content-length: +5\r\n\r\nhello", 400),
    ("length list", POST + b"content-length: 5, 5\r\n\r\nhello", 400),
    ("endless length", POST + b"content-length: " + b"9" * 30 + b"\r\n\r\n", 400),
    ("odd encoding", POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    ("space before colon", b"GET / HTTP/1.1\r\nhost : x\r\n\r\n", 400),
    ("folded header", GET + b"x: a\r\n b\r\n\r\n", 400),
    ("no host", b"GET / HTTP/1.1\r\n\r\n", 400),
    ("two hosts", b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
    ("bad chunk", CHUNKED + b"\r\nzz\r\n", 400),
    ("not http", b"\x15\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ("large body", POST + b"content-length: 100001\r\n\r\n", 413),
    ("large chunk", CHUNKED + b"\r\nfffff\r\n" + b"x" * 0x20000, 413),
    ("long url", b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 414),
    ("many headers", GET + b"" + b"a: b\r\n" * 40 + b"\r\n", 431),
    ("large header", GET + b"a: " + b"b" * 5000 + b"\r\n\r\n", 431),
    ("endless header", GET + b"a: " + b"b" * 50_000, 431),
    ("endless blank lines", b"\r\n" * 40_000, 431),
    ("large trailer", CHUNKED + b"\r\n0\r\na: " + b"b" * 5000 + b"\r\n\r\n", 431),
    ("endless trailer", CHUNKED + b"\r\n0\r\na: " + b"b" * 900_000, 413),
    ("chunk confetti", CHUNKED + b"\r\n" + b"1\r\na\r\n" * 99_000, 413),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused(timed: Timed, data: bytes, status: int) -> None:
    try:
        timed.send(data)
        timed.send(LIVE)  # smuggled: must not be answered
    except OSError:  # refused before everything was sent
        pass
    got, headers, body = timed.reply()
    assert got == status and headers["connection"] == "close" and "error" in json.loads(body)
    assert timed.closed()


def test_tls_at_a_port_without_it(timed: Timed) -> None:
    timed.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert "TLS to a port without TLS; try http://" in json.loads(timed.reply()[2])["error"]


def test_refusal_comes_after_earlier_answers(client: Any) -> None:
    client.send(post(body_for(1, "first")) + b"GARBAGE\r\n\r\n")
    assert json.loads(client.reply()[2])["id"] == "first"
    assert client.reply()[0] == 400 and client.closed()


def test_upgrade_is_not_followed(client: Any) -> None:
    client.send(b"GET /v2 HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n" + LIVE)
    status, headers, _ = client.reply()
    assert status == 200 and "connection" not in headers
    assert json.loads(client.reply()[2]) == {"live": True}


def test_client_that_does_not_read(mlp: Any, connect: Any) -> None:
    """Pipelines requests for large answers and never reads one: the server holds a few of them, then gives up."""
    clock = ManualClock()
    with Server([mlp], options=ModelConfig(instances=1), clock=clock) as server, clock, connect(server) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.send(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 2000)
        timed = Timed(server, client)
        wait_until(lambda: timed.connections(lambda them: any(each.sender.paused for each in them)))
        timed.passes(server.limits.write_s + SWEEP_S)
        wait_until(lambda: not timed.connections(len))
        assert server._listener_state.slow_clients == 1


def test_limits_of_the_whole_server(mlp: Any, connect: Any) -> None:
    limits = RequestLimits(connections=3, buffered=3000, linger_s=0.3)
    with Server([mlp], options=ModelConfig(instances=1), limits=limits) as server:
        clients = [connect(server) for _ in range(4)]
        for client in clients[:3]:
            client.send(LIVE)
            assert client.reply()[0] == 200
        status, headers, _ = clients[3].reply()
        assert status == 503 and headers["retry-after"] == "1"
        head = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 2000\r\n\r\n" % INFER
        clients[0].send(head + b" " * 1900)
        wait_until(lambda: server._listener_state.buffered >= 1900)
        clients[1].send(head + b" " * 1900)
        assert clients[1].reply()[0] == 503
        clients[0].send(b" " * 100)
        assert clients[0].reply()[0] == 400
        for client in clients[:2]:
            client.socket.close()
        wait_until(lambda: server._listener_state.buffered == 0)
        clients[2].send(LIVE)
        assert clients[2].reply()[0] == 200
        for client in clients:
            client.socket.close()


def test_a_defect_of_ours_is_a_500_and_logged(listen: Any, connect: Any, caplog: pytest.LogCaptureFixture) -> None:
    def handle(exchange: Exchange) -> None:
        exchange.reply(200, b"%d" % (1 // len(exchange.body)))

    with listen(handle) as plane, connect(plane) as client:
        client.send(post(b""))
        status, _, body = client.reply()
        assert status == 500 and b"the server failed on this request" in body and "ZeroDivisionError" in caplog.text
        assert b"Traceback" not in body and b"division" not in body
        client.send(post(b"x"))
        assert client.reply()[0] == 200


def test_a_connection_that_fails_does_not_stop_the_clock(
    listen: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def overdue(self: Connection, now: float) -> None:
        raise ZeroDivisionError

    with listen(limits=RequestLimits(idle_s=0.2)) as plane:
        with monkeypatch.context() as patch, connect(plane) as client:
            patch.setattr(Connection, "on_deadline", overdue)
            assert client.closed() and "ZeroDivisionError" in caplog.text
        with connect(plane) as client:
            assert client.closed()
