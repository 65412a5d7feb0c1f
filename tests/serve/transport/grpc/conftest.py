"""A server of calls without models: what the HTTP/2 transport of gRPC is tested with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

import pytest
from manual_clock import ManualClock

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve import RequestLimits
from ox.serve.transport.grpc.http2_transport import Http2Transport
from ox.serve.transport.grpc.rpc import Method, Rpc, StatusCode
from ox.serve.transport.http import Exchange, ListenerState
from ox.serve.transport.http2 import Http2


class Echoes:
    """Echoes of several kinds on a loop in a thread of its own."""

    def __init__(self, limits: RequestLimits, clock: ManualClock | None = None) -> None:
        self.limits, self.clock = limits, clock
        self.held: list[Rpc] = []
        self.alive: WeakSet[Rpc] = WeakSet()
        self.abandoned = self.bytes_allocated = 0
        calls = {
            False: [self.echo, self.hold, self.fail, self.big, self.tell],
            True: [self.each, self.many, self.paced],
        }
        methods = [(call.__name__.title(), streams, call) for streams in calls for call in calls[streams]]
        self.table = {f"/t.T/{name}".encode(): Method(f"/t.T/{name}".encode(), s, c) for name, s, c in methods}

    def echo(self, message: bytes, rpc: Rpc) -> None:
        self.alive.add(rpc)
        rpc.send(message)
        rpc.finish()

    def big(self, message: bytes, rpc: Rpc) -> None:
        rpc.send(b"b" * int(message))
        rpc.finish()

    def tell(self, message: bytes, rpc: Rpc) -> None:
        assert rpc.peer == "127.0.0.1"
        rpc.send(rpc.metadata.get(message, b"-"))
        rpc.finish()

    def hold(self, message: bytes, rpc: Rpc) -> None:
        rpc.on_cancel = self._abandoned
        self.held.append(rpc)

    def fail(self, message: bytes, rpc: Rpc) -> None:
        rpc.fail(int(message), "100% wrong: ä\n")
        rpc.fail(0, "not heard")
        rpc.send(b"not heard")
        rpc.finish()

    def each(self, message: bytes, rpc: Rpc) -> None:
        rpc.on_half_close, rpc.on_cancel = rpc.finish, self._abandoned
        if message == b"fail":
            rpc.fail(StatusCode.ABORTED, "enough")
        rpc.send(message)

    def many(self, message: bytes, rpc: Rpc) -> None:
        for _ in range(int(message)):
            rpc.send(bytes(10_000))
        rpc.on_half_close = rpc.finish
        self.taken += 1

    def paced(self, message: bytes, rpc: Rpc) -> None:
        """Two at a time, each answered a moment later."""
        waiting = rpc.state = [*(rpc.state or []), message]  # type: ignore[misc]
        if len(waiting) == 1:
            rpc.on_half_close = lambda: None if rpc.state else rpc.finish()
        assert len(waiting) <= 2
        if len(waiting) == 2:
            rpc.pause()
        self.loop.call_later(0.001, self._paced, rpc)

    def _paced(self, rpc: Rpc) -> None:
        rpc.send(rpc.state.pop(0))  # type: ignore[attr-defined]
        if rpc.on_half_close is None and not rpc.state:
            rpc.finish()
        else:
            rpc.resume()

    def _abandoned(self) -> None:
        self.abandoned += 1

    def __enter__(self) -> Echoes:
        self.loop = (self.clock or SYSTEM).new_event_loop()
        ready = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self._run(ready),))
        self.thread.start()
        ready.wait()
        self.target = f"127.0.0.1:{self.port}"
        return self

    async def _run(self, ready: threading.Event) -> None:
        def handle(exchange: Exchange) -> None:
            raise ServeError("no such page", status=404)

        self.listener_state = ListenerState(handle, self.limits, clock=self.clock or SYSTEM)
        self.grpc = Http2Transport(self.table, self.limits.body)
        self.stopping = asyncio.Event()
        listener = await self.loop.create_server(Http2(self.listener_state, self.grpc.route), "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        ready.set()
        await self.stopping.wait()
        listener.close()
        await self.listener_state.drain()

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.stopping.set)
        if self.clock is not None:
            self.clock.__exit__()
        self.thread.join()
        self.loop.close()

    def do(self, call: Callable[[], Any]) -> Any:
        async def on_loop() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(120)

    def passes(self, seconds: float) -> None:
        """Has time pass on the clock, in steps of a second."""
        assert self.clock is not None
        while seconds > 0:
            self.do(lambda: None)
            self.clock.advance(min(1.0, seconds))
            seconds -= 1
        self.do(lambda: None)


MESSAGE = 3_000_000


@pytest.fixture(scope="session")
def echoes() -> type[Echoes]:
    return Echoes


@pytest.fixture(scope="session")
def patient() -> RequestLimits:
    return RequestLimits(body=MESSAGE, buffered=4 * MESSAGE, header_bytes=4096)


@pytest.fixture(scope="session")
def shared_site(patient: RequestLimits) -> Iterator[Echoes]:
    with Echoes(patient) as running:
        yield running


@pytest.fixture
def site(shared_site: Echoes) -> Iterator[Echoes]:
    """Echoes of several kinds over our own framing."""
    yield shared_site
    assert shared_site.do(lambda: shared_site.listener_state.buffered) == 0
