"""Who comes while the loop is busy gets in: several a turn, on whichever loop."""

from __future__ import annotations

import asyncio
import socket

import pytest
from waiting import give_way

from ox.clock import SYSTEM
from ox.serve.transport.listen import SOCKET_COPIES, listen
from ox.serve.transport.sockets import bind

CLIENTS = 320


@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_many_get_in_a_turn(kind: str) -> None:
    if kind == "uvloop":
        pytest.importorskip("uvloop", reason="uvloop is not installed")
    came: list[asyncio.BaseTransport] = []

    class Guest(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            came.append(transport)

    async def body() -> int:
        listener = await listen(Guest, bind("127.0.0.1", 0))
        clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(CLIENTS)]
        turns = 0
        while len(came) < CLIENTS and turns < 2 * CLIENTS:
            turns += 1
            await give_way()
        listener.close()
        for transport in came:
            transport.abort()  # type: ignore[attr-defined]
        for client in clients:
            client.close()
        await give_way()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", listener.port), timeout=1)
        return turns

    loop = SYSTEM.new_event_loop() if kind == "uvloop" else asyncio.new_event_loop()
    try:
        turns = loop.run_until_complete(body())
    finally:
        loop.close()
    assert len(came) == CLIENTS and turns <= 2 * CLIENTS / SOCKET_COPIES + 10
