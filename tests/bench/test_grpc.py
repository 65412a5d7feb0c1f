"""gRPC over raw HTTP/2: servers written with the h2 library that do what the protocol allows, and what it does not."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from ox.bench import Result
from ox.bench.protobuf import framed, packed
from ox.errors import ServeError
from ox.protobuf import field

h2 = pytest.importorskip("h2.connection", reason="h2 is not installed")
from h2.config import H2Configuration  # noqa: E402
from h2.events import DataReceived, RequestReceived, StreamEnded, WindowUpdated  # noqa: E402
from h2.settings import SettingCodes  # noqa: E402

Load = Callable[..., Result]
SIZE = 10_000  # floats of one row: more than a window and a frame


def tensor(number: int, name: str) -> bytes:
    return field(number, field(1, name) + field(2, "FP32") + packed(3, (-1, SIZE)))


MODEL = field(1, "m") + tensor(4, "x") + tensor(5, "y")
INDEX = field(1, field(1, "gone") + field(3, "UNAVAILABLE")) + field(1, field(1, "m") + field(3, "READY"))


def right(body: bytes) -> bytes:
    """Echoes the request's one tensor."""
    data = body[-4 * SIZE :]
    return field(1, "m") + field(5, field(1, "y") + field(2, "FP32") + packed(3, (1, SIZE))) + field(6, data)


class Peer(asyncio.Protocol):
    """One connection. `odd(peer, stream, number)` may answer an inference in its own way and return True."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.h2 = h2.H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.paths: dict[int, str] = {}
        self.bodies: dict[int, bytearray] = {}
        self.pending: dict[int, bytes] = {}
        self.lost = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.server.peers.add(self)
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 9000})  # the client learns it while it sends
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.peers.discard(self)
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, RequestReceived):
                headers = dict(event.headers)
                assert headers["te"] == "trailers" and headers[":method"] == "POST"
                self.server.keys.add(headers.get("authorization"))
                self.paths[event.stream_id], self.bodies[event.stream_id] = headers[":path"], bytearray()
            elif isinstance(event, DataReceived):
                self.bodies[event.stream_id] += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                self.ended(event.stream_id)
            elif isinstance(event, WindowUpdated):
                self.go_on()
        self.flush()

    def ended(self, stream: int) -> None:
        body = bytes(self.bodies.pop(stream))
        assert len(body) == 5 + struct.unpack(">I", body[1:5])[0]
        path = self.paths.pop(stream)
        if path.endswith("/ModelMetadata"):
            self.answer(stream, MODEL)
        elif path.endswith("/RepositoryIndex"):
            self.answer(stream, INDEX)
        else:
            number, self.server.asked = self.server.asked, self.server.asked + 1
            if number < 0 or not self.server.odd(self, stream, number):
                self.answer(stream, right(body))

    def answer(self, stream: int, message: bytes, status: str = "0", text: str = "") -> None:
        self.h2.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        self.pending[stream] = framed(message)
        self.status = [("grpc-status", status), ("grpc-message", text)]
        self.go_on()

    def go_on(self) -> None:
        for stream, data in list(self.pending.items()):
            while data and (size := min(self.h2.local_flow_control_window(stream), 16_384)) > 0:
                self.h2.send_data(stream, data[:size], pad_length=3 if size < 16_000 else None)
                data = data[size:]
            self.pending[stream] = data
            if not data:
                del self.pending[stream]
                self.h2.send_headers(stream, self.status, end_stream=True)

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.transport.write(data)


class Server:
    def __init__(self, odd: Callable[[Peer, int, int], Any]) -> None:
        self.odd, self.asked = odd, -8
        self.keys: set[str | None] = set()
        self.peers: set[Peer] = set()

    def run(self, started: threading.Event) -> None:
        async def body() -> None:
            self.loop, self.over = asyncio.get_running_loop(), asyncio.Event()
            server = await self.loop.create_server(lambda: Peer(self), "127.0.0.1", 0)
            self.url = f"grpc://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            started.set()
            await self.over.wait()
            # A connection on its way in is a task of the loop before it is a peer, and one that finds its server
            # closed loses its socket: so these end first.
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)
            server.close()
            for peer in list(self.peers):
                peer.transport.abort()
                await peer.lost.wait()

        asyncio.run(body())


@contextmanager
def serving(odd: Callable[[Peer, int, int], Any]) -> Iterator[Server]:
    server, started = Server(odd), threading.Event()
    thread = threading.Thread(target=server.run, args=(started,))
    thread.start()
    started.wait()
    try:
        yield server
    finally:
        server.loop.call_soon_threadsafe(server.over.set)
        thread.join()


def test_flow_control_both_ways_and_padding(here: Load) -> None:
    with serving(lambda *_: False) as server:
        result = here(server.url, check=True, key="secret")
        (step,) = result.steps
        assert result.model == "m"  # the first that is ready
        assert step.answered == server.asked > 0 and not step.failed
        assert server.keys == {"Bearer secret"}


def test_refusals_resets_and_farewells(here: Load) -> None:
    def odd(peer: Peer, stream: int, number: int) -> bool:
        case = number % 6
        if case == 1:
            peer.h2.send_headers(stream, [(":status", "200")])
            peer.h2.send_headers(stream, [("grpc-status", "14"), ("grpc-message", "is%20full")], end_stream=True)
        elif case == 2:
            peer.h2.send_headers(stream, [(":status", "200"), ("grpc-status", "4")], end_stream=True)
        elif case == 3:
            peer.h2.reset_stream(stream, 7)
        elif case == 4:
            peer.transport.close()
        elif case == 5:
            peer.h2.send_headers(stream, [(":status", "429")], end_stream=True)
        return case > 0

    with serving(odd) as server:
        (step,) = here(server.url).steps
        assert step.answered + step.failed == server.asked
    kinds = {"gRPC 14 UNAVAILABLE", "gRPC 4 DEADLINE_EXCEEDED", "HTTP/2 reset, code 7", "closed", "HTTP 429"}
    assert set(step.failures.counts) == kinds and step.answered
    assert step.failures.examples["gRPC 14 UNAVAILABLE"] == "is full"


def test_a_server_that_says_goodbye(here: Load) -> None:
    """GOAWAY: what is out is answered, what comes after goes over another connection, nothing fails."""

    def odd(peer: Peer, stream: int, number: int) -> bool:
        if number % 5 == 4:
            peer.transport.write(struct.pack(">I", 8)[1:] + b"\x07\0" + struct.pack(">III", 0, stream, 0))
        return False

    with serving(odd) as server:
        (step,) = here(server.url).steps
        assert step.answered == server.asked and not step.failed and (step.reconnects or server.asked <= 5)


def data_frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">I", len(data))[1:] + b"\0\0" + struct.pack(">I", stream) + data


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (b"\0\0\0\x05\x04\0\0\0\x01", "wrong: not HTTP/2"),  # a push
        (b"\0\0\0\x09\x04\0\0\0\x01", "wrong: not HTTP/2"),  # a continuation of nothing
        (b"\0\0\1\x01\x00\0\0\0\x01\x88" + data_frame(1, b"x"), "wrong: not HTTP/2"),  # interrupted headers
        (b"\x01\0\0\0\0\0\0\0\x01", "wrong: not HTTP/2"),  # a frame that is too large
        (data_frame(99, b"x"), "wrong: not HTTP/2"),
        (b"\0\0\x01\x01\x05\0\0\0\x01\xff", "wrong: not HTTP/2"),  # no HPACK
        (b"\0\0\2\0\x08\0\0\0\x01\x09x", "wrong: not HTTP/2"),  # more padding than frame
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "wrong: not HTTP/2"),
    ],
)
def test_what_is_no_http2(here: Load, frame: bytes, kind: str) -> None:
    def odd(peer: Peer, stream: int, number: int) -> bool:
        fitted = bytearray(frame)
        if frame[8:9] == b"\x01":
            fitted[8] = stream
        peer.transport.write(bytes(fitted))
        return True

    with serving(odd) as server:
        (step,) = here(server.url, seconds=0.1, timeout=3.0).steps
        assert set(step.failures.counts) == {kind} and step.failed == server.asked > 0


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (b"", "wrong: outputs []"),
        (b"\xff\xff", "wrong: unreadable"),
        (right(np.zeros(SIZE, np.float32).tobytes()), "wrong: other values of 'y'"),
        (right(np.zeros(3, np.float32).tobytes()), "wrong: unreadable"),
    ],
)
def test_wrong_messages(here: Load, message: bytes, kind: str) -> None:
    def odd(peer: Peer, stream: int, number: int) -> bool:
        peer.answer(stream, message)
        return True

    with serving(odd) as server:
        result = here(server.url, seconds=0.1, check=True)
        assert result.steps[0].failed == server.asked > 0 and not result.good
    (found,) = result.steps[0].failures.counts
    assert found.startswith(kind)


def test_a_server_that_speaks_http1(here: Load, raw: Any) -> None:
    async def behave(number: int, writer: asyncio.StreamWriter) -> None:
        return

    with raw(behave) as server, pytest.raises(ServeError):
        here(server.url.replace("http", "grpc"), model="m", timeout=0.3)


def test_the_server_leaves_no_connection_half_accepted() -> None:
    """Connections that come while it ends: each is closed before its loop is."""
    for _ in range(3):
        with serving(lambda *_: False) as server:
            port = int(server.url.rpartition(":")[2])
            links = [socket.create_connection(("127.0.0.1", port)) for _ in range(90)]
        for link in links:
            link.close()
        del server
        gc.collect()  # a transport that nobody closed warns now, and warnings are errors
