"""A server of HTTP/2 alone, and a client that speaks frames."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson
import pytest
from hpack import Decoder, Encoder
from manual_clock import ManualClock
from waiting import wait_until

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve import RequestLimits
from ox.serve.response_memory import Buffers
from ox.serve.transport.http import Exchange, ListenerState
from ox.serve.transport.http2 import Http2, HttpStream
from ox.serve.transport.http2 import frames as f
from ox.serve.transport.http2.connection import Connection

LIMITS = RequestLimits(
    body=100_000,
    reply=4_000_000,
    header_bytes=4096,
    header_count=30,
    url=1000,
    streams=20,
    connections=50,
    linger_s=0.4,
    drain_s=2.0,
)


# Fetches other pages at once, and shows what it got and how.
PAGE = b"""<!doctype html><title>page</title><script>
onload = async () => {
  const sizes = await Promise.all([300000, 5, 70000].map(async n => (await (await fetch("/bytes/" + n)).text()).length))
  const sent = await (await fetch("/sent", {method: "POST", body: "x".repeat(90000)})).json()
  const how = performance.getEntriesByType("resource").map(entry => entry.nextHopProtocol)
  document.body.textContent = [...sizes, sent.size, ...how].join(" ")
}
</script>"""


class Site:
    """What answers: an echo, bytes by the number, or nothing until it is told to."""

    def __init__(
        self,
        limits: RequestLimits,
        mixed: bool = False,
        tls: ssl.SSLContext | None = None,
        clock: ManualClock | None = None,
        root_path: bytes = b"",
    ) -> None:
        self.held: list[Exchange] = []
        self.abandoned = 0
        self.limits, self.mixed, self.tls, self.clock, self.root_path = limits, mixed, tls, clock, root_path
        self.received: Counter[int] = Counter()  # bytes, by the port of the client

    def handle(self, exchange: Exchange) -> None:
        path = exchange.target.decode()
        if path.startswith("/bytes/"):
            exchange.reply(200, b"x" * int(path.removeprefix("/bytes/")), b"text/plain")
        elif path.startswith("/large/"):
            exchange.reply(200, Buffers([memoryview(bytearray(int(path.removeprefix("/large/"))))]), b"text/plain")
        elif path == "/page":
            exchange.reply(200, PAGE, b"text/html")
        elif path == "/hold":
            exchange.on_cancel = self._abandoned
            self.held.append(exchange)
        elif path == "/events":
            stream = exchange.stream_response(200, b"text/event-stream")
            stream.write(b"data: 1\n\n")
            stream.end()
        elif path == "/broken":
            raise ZeroDivisionError
        elif path == "/refused":
            raise ServeError("not now", status=503)
        else:
            headers = {name.decode(): value.decode("latin-1") for name, value in exchange.headers.items()}
            document = {
                "method": exchange.method.decode(),
                "path": path,
                "headers": headers,
                "size": len(exchange.body),
            }
            exchange.reply(200, orjson.dumps(document))

    def _abandoned(self) -> None:
        self.abandoned += 1

    # ---- in a thread of its own

    def __enter__(self) -> Site:
        self.loop = (self.clock or SYSTEM).new_event_loop()
        ready = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self._run(ready),))
        self.thread.start()
        ready.wait()
        return self

    async def _run(self, ready: threading.Event) -> None:
        clock = self.clock or SYSTEM
        self.listener_state = ListenerState(self.handle, self.limits, root_path=self.root_path, clock=clock)
        http2 = Http2(self.listener_state, lambda head: HttpStream)
        self.listener_state.upgrade = http2.upgrade
        self.stopping = asyncio.Event()
        factory = self.listener_state if self.mixed else lambda: self._counted(http2())
        listener = await self.loop.create_server(factory, "127.0.0.1", 0, ssl=self.tls)
        self.port = listener.sockets[0].getsockname()[1]
        ready.set()
        await self.stopping.wait()
        listener.close()
        await self.listener_state.drain()

    def _counted(self, connection: Connection) -> Connection:
        receive = connection.data_received

        def data_received(data: bytes) -> None:
            receive(data)
            self.received[connection.transport.get_extra_info("peername")[1]] += len(data)

        connection.data_received = data_received  # type: ignore[method-assign]
        return connection

    def passes(self, seconds: float, *wires: Wire) -> None:
        """Has time pass on the clock, in steps of a second, once what these clients have sent is read."""
        for wire in wires:
            port = wire.socket.getsockname()[1]
            wait_until(lambda port=port, wire=wire: self.received[port] >= wire.sent)  # type: ignore[misc]
        assert self.clock is not None
        while seconds > 0:
            self.do(lambda: None)
            self.clock.advance(min(1.0, seconds))
            seconds -= 1
        self.do(lambda: None)

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self.clock is not None:
            self.clock.__exit__()
        self.thread.join()
        self.loop.close()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.stopping.set)

    def do(self, call: Callable[[], Any]) -> Any:
        """The result of a call on the loop."""

        async def on_loop() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(120)


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


class Wire:
    """A raw client. It acknowledges nothing by itself but the server's SETTINGS."""

    def __init__(self, port: int, settings: dict[int, int] | None = None, greet: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.sent = b"", 0
        self.encoder, self.decoder = Encoder(), Decoder()
        self.settings: dict[int, int] = {}
        if greet:
            self.send(f.PREFACE, f.settings(settings or {}), f.frame(f.SETTINGS, f.ACK, 0, b""))
            frame = self.frame()
            assert frame.kind == f.SETTINGS
            self.settings = dict(f.read_settings(frame.payload))

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *pieces: bytes) -> None:
        data = b"".join(pieces)
        self.socket.sendall(data)
        self.sent += len(data)

    def frame(self) -> Frame:
        """The next frame."""
        head = self._exactly(9)
        high, low, kind, flags, stream = f.FRAME.unpack(head)
        return Frame(kind, flags, stream, self._exactly(high << 16 | low))

    def _exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError(f"closed with {self.buffer!r} unread")
            self.buffer += data
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def until(self, kind: int, stream: int | None = None) -> Frame:
        """The next frame of a kind; others are passed over."""
        while True:
            frame = self.frame()
            if frame.kind == kind and stream in (None, frame.stream):
                return frame

    def head(
        self, stream: int, path: str = "/", end: bool = True, method: str = "GET", headers: Any = (), flags: int = 0
    ) -> bytes:
        """The HEADERS frame of a request."""
        fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test"), *headers]
        block = self.encoder.encode(fields)
        return f.frame(f.HEADERS, f.END_HEADERS | (f.END_STREAM if end else 0) | flags, stream, block)

    def fields(self, stream: int, fields: list[tuple[str, str]], end: bool = True) -> bytes:
        """A HEADERS frame of any fields."""
        return f.frame(f.HEADERS, f.END_HEADERS | (f.END_STREAM if end else 0), stream, self.encoder.encode(fields))

    def answer(self, stream: int) -> tuple[int, dict[str, str], bytes]:
        """The whole answer on a stream, and room for as much again."""
        headers: dict[str, str] = {}
        body = b""
        while True:
            frame = self.frame()
            if frame.kind == f.HEADERS:
                fields = dict(self.decoder.decode(frame.payload))
                if frame.stream == stream:
                    headers.update(fields)
            elif frame.kind == f.DATA and frame.payload:
                self.send(f.window_update(0, len(frame.payload)))
                if frame.stream == stream:
                    body += frame.payload
                    if not frame.flags & f.END_STREAM:
                        self.send(f.window_update(stream, len(frame.payload)))
            elif frame.kind in (f.GOAWAY, f.RST_STREAM):
                assert frame.stream not in (0, stream), frame
            if frame.stream == stream and frame.flags & f.END_STREAM and frame.kind in (f.HEADERS, f.DATA):
                return int(headers[":status"]), headers, body

    def reset_of(self, stream: int) -> int:
        """The code with which the server ends a stream."""
        return int.from_bytes(self.until(f.RST_STREAM, stream).payload, "big")

    def goaway(self) -> int:
        """The code with which the server ends the connection; and it does end."""
        payload = self.until(f.GOAWAY).payload
        assert self.closed()
        return int.from_bytes(payload[4:8], "big")

    def closed(self) -> bool:
        """Whether the server closes the connection; whatever else it sends is passed over."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        return True

    def alive(self) -> None:
        """The connection goes on."""
        self.send(f.frame(f.PING, 0, 0, b"12345678"))
        while True:
            frame = self.until(f.PING)
            if frame.payload == b"12345678":
                assert frame.flags == f.ACK
                return


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with Site(LIMITS) as running:
        yield running


@pytest.fixture(scope="session")
def timed() -> Iterator[Site]:
    """The same, whose time passes where a test says so."""
    with Site(LIMITS, clock=ManualClock()) as running:
        yield running


@pytest.fixture
def wire(site: Site) -> Iterator[Wire]:
    with Wire(site.port) as connected:
        yield connected


@pytest.fixture
def timed_wire(timed: Site) -> Iterator[Wire]:
    with Wire(timed.port) as connected:
        yield connected


@pytest.fixture(scope="session")
def connect() -> type[Wire]:
    return Wire


@pytest.fixture(scope="session")
def serve() -> type[Site]:
    return Site


@pytest.fixture(scope="session")
def limits() -> RequestLimits:
    return LIMITS
