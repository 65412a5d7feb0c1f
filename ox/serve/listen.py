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
    """One address, however many sockets take connections from it.

    Args:
        servers: those that take them.
        port: of TCP; None for a Unix domain socket.
    """

    def __init__(self, servers: Sequence[asyncio.Server], port: int | None) -> None:
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
    uvloop = type(loop).__module__.startswith("uvloop")
    servers: list[asyncio.Server] = []
    name = sockets[0].getsockname()
    port = name[1] if isinstance(name, tuple) else None
    # asyncio's own `create_unix_server` would take the file away, which may be another process's as well
    create = loop.create_unix_server if uvloop and port is None else loop.create_server
    try:
        for bound in sockets:
            servers.append(await create(factory, sock=bound, **options))
            for _ in range(COPIES - 1 if uvloop else 0):
                copy = socket.socket(fileno=os.dup(bound.fileno()))
                servers.append(await create(factory, sock=copy, **options))
    except OSError as error:
        host = bound.getsockname()[0]
        for server in servers:
            server.close()
        for each in sockets:
            each.close()
        raise unavailable(host, port or 0, error) from error
    return Listener(servers, port)
