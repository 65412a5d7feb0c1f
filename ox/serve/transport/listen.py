"""Listening sockets that accept new connections also under load.

uvloop accepts one connection per socket and iteration of its loop. Under load an iteration takes many milliseconds, so
that thousands of reconnecting clients, and health probes, would wait for minutes. Each duplicate of the listening
socket accepts one more per iteration.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from ox.serve.transport.address import bind_error

BACKLOG = 2048
SOCKET_COPIES = 16  # connections accepted per iteration; each costs one system call per new connection


class Listener:
    """One listening address with one or more sockets.

    Args:
        servers: the asyncio servers of its sockets.
        port: the TCP port; None for a Unix domain socket.
    """

    def __init__(self, servers: Sequence[asyncio.Server], port: int | None) -> None:
        self._servers, self.port = servers, port

    def close(self) -> None:
        """Stops accepting connections."""
        for server in self._servers:
            server.close()


async def listen(
    factory: Callable[[], asyncio.BaseProtocol], sockets: Sequence[socket.socket], *, tls: ssl.SSLContext | None = None
) -> Listener:
    """Accepts connections on bound sockets; the listener owns the sockets from then on.

    Raises:
        ServeError: another process listens there.
    """
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"backlog": BACKLOG, "ssl": tls}
    uvloop = type(loop).__module__.startswith("uvloop")
    servers: list[asyncio.Server] = []
    name = sockets[0].getsockname()
    port = name[1] if isinstance(name, tuple) else None
    # asyncio's `create_unix_server` removes the file, which another process may use too
    create = loop.create_unix_server if uvloop and port is None else loop.create_server
    try:
        for sock in sockets:
            servers.append(await create(factory, sock=sock, **options))
            for _ in range(SOCKET_COPIES - 1 if uvloop else 0):
                duplicate = socket.socket(fileno=os.dup(sock.fileno()))
                servers.append(await create(factory, sock=duplicate, **options))
    except OSError as error:
        host = sock.getsockname()[0]
        for server in servers:
            server.close()
        for each in sockets:
            each.close()
        raise bind_error(host, port or 0, error) from error
    return Listener(servers, port)
