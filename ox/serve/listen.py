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

from ox.serve.address import unavailable

BACKLOG = 2048
COPIES = 16  # connections a turn; each costs a system call when somebody comes


class Listener:
    """One port, however many sockets take connections from it."""

    def __init__(self, servers: Sequence[asyncio.Server], port: int) -> None:
        self._servers, self.port = servers, port

    def close(self) -> None:
        """Nobody new gets in."""
        for server in self._servers:
            server.close()


async def listen(
    factory: Callable[[], asyncio.BaseProtocol], sockets: Sequence[socket.socket], *, tls: ssl.SSLContext | None = None
) -> Listener:
    """Takes connections from bound sockets, which from then on belong to the listener.

    Raises:
        ServeError: somebody else listens there.
    """
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"backlog": BACKLOG, "ssl": tls}
    copies = COPIES - 1 if type(loop).__module__.startswith("uvloop") else 0
    servers: list[asyncio.Server] = []
    port = sockets[0].getsockname()[1]
    try:
        for bound in sockets:
            servers.append(await loop.create_server(factory, sock=bound, **options))
            for _ in range(copies):
                copy = socket.socket(fileno=os.dup(bound.fileno()))
                servers.append(await loop.create_server(factory, sock=copy, **options))
    except OSError as error:
        host = bound.getsockname()[0]
        for server in servers:
            server.close()
        for each in sockets:
            each.close()
        raise unavailable(host, port, error) from error
    return Listener(servers, port)
