"""The data plane alone: a front with a handler of the test's own, no models."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from ox.clock import SYSTEM
from ox.serve import RequestLimits
from ox.serve.transport.http import Exchange, ListenerState

Listen = Callable[..., AbstractContextManager["Plane"]]


@dataclass
class Plane:
    """What a client connects to, and the listener behind it."""

    host: str
    port: int
    listener_state: ListenerState
    loop: asyncio.AbstractEventLoop

    def on_loop(self, call: Callable[[], Any]) -> Any:
        """The value of `call`, run on the loop's thread."""

        async def run() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(120)


def echo(exchange: Exchange) -> None:
    """Answers with what was understood of the request."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers.items()}
    told = {
        "method": exchange.method.decode(),
        "target": exchange.target.decode("latin-1"),
        "headers": headers,
        "body": exchange.body.decode("latin-1"),
    }
    exchange.reply(200, orjson.dumps(told))


@pytest.fixture(scope="session")
def listen() -> Listen:
    @contextmanager
    def plane(
        handle: Callable[[Exchange], None] = echo, limits: RequestLimits | None = None, tls: Any = None, **options: Any
    ) -> Iterator[Plane]:
        loop, ready, stopping = SYSTEM.new_event_loop(), threading.Event(), asyncio.Event()
        made: list[Plane] = []

        async def body() -> None:
            listener_state = ListenerState(handle, limits or RequestLimits(), clock=SYSTEM, **options)
            listener = await loop.create_server(listener_state, "127.0.0.1", 0, backlog=2048, ssl=tls)
            made.append(Plane("127.0.0.1", listener.sockets[0].getsockname()[1], listener_state, loop))
            ready.set()
            await stopping.wait()
            listener.close()
            await listener_state.drain()

        thread = threading.Thread(target=loop.run_until_complete, args=(body(),), daemon=True)
        thread.start()
        assert ready.wait(120)
        try:
            yield made[0]
        finally:
            loop.call_soon_threadsafe(stopping.set)
            thread.join(120)
            loop.close()

    return plane
