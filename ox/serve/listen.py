"""Listening, so that new clients get in while the old ones keep the server busy.

uvloop takes one new connection a turn of its loop, and under load a turn is many milliseconds long: thousands of
clients that come back at once, and whoever asks whether the server lives, would wait for minutes. Each copy of the
listening socket may take one, so there are several.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

BACKLOG = 2048
COPIES = 16  # connections a turn; each costs a system call when somebody comes


class Listener:
    """One port, however many sockets take connections from it."""

    def __init__(self, servers: Sequence[asyncio.Server]) -> None:
        self._servers = servers
        self.port: int = servers[0].sockets[0].getsockname()[1]

    def close(self) -> None:
        """Nobody new gets in."""
        for server in self._servers:
            server.close()


async def listen(
    factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    reuse_port: bool = False,
) -> Listener:
    """Raises OSError or OverflowError where the address cannot be had."""
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"backlog": BACKLOG, "ssl": tls}
    servers = [await loop.create_server(factory, host, port, reuse_port=reuse_port or None, **options)]
    if type(loop).__module__.startswith("uvloop"):
        for listening in servers[0].sockets:
            for _ in range(COPIES - 1):
                copy = socket.socket(fileno=os.dup(listening.fileno()))
                servers.append(await loop.create_server(factory, sock=copy, **options))
    return Listener(servers)
