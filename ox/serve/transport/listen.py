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
from collections.abc import Sequence
from typing import Any, Protocol

from ox.serve.config.request_limits import RequestLimits
from ox.serve.transport.address import bind_error
from ox.serve.transport.proxy_listener import ProxyListener

BACKLOG = 2048
SOCKET_COPIES = 16  # connections accepted per iteration; each costs one system call per new connection


class Listener:
    """One listening address with one or more sockets.

    Args:
        servers: those of its sockets.
        port: the TCP port; None for a Unix domain socket.
    """

    def __init__(self, servers: Sequence[asyncio.Server | ProxyListener], port: int | None) -> None:
        self._servers, self.port = servers, port

    def close(self) -> None:
        """Stops accepting connections."""
        for server in self._servers:
            server.close()


class Factory(Protocol):
    """Returns the protocol of a new connection."""

    def __call__(self, peer: str | None = None) -> asyncio.BaseProtocol:
        """The protocol of a client with this address; None: that of the transport."""


async def listen(
    factory: Factory,
    sockets: Sequence[socket.socket],
    *,
    tls: ssl.SSLContext | None = None,
    proxy_protocol: RequestLimits | None = None,
) -> Listener:
    """Accepts connections on bound sockets; the listener owns the sockets from then on.

    Args:
        factory: creates the protocols.
        sockets: all of one port, or one of a Unix domain socket.
        tls: None for plain text.
        proxy_protocol: connections begin with a PROXY header, and have these limits for it; None: they do not.

    Raises:
        ServeError: another process listens there.
    """
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"backlog": BACKLOG, "ssl": tls}
    uvloop = type(loop).__module__.startswith("uvloop")
    servers: list[asyncio.Server | ProxyListener] = []
    name = sockets[0].getsockname()
    port = name[1] if isinstance(name, tuple) else None
    # asyncio's `create_unix_server` removes the file, which another process may use too
    create = loop.create_unix_server if uvloop and port is None else loop.create_server
    try:
        for sock in sockets:
            if proxy_protocol is not None:
                servers.append(ProxyListener(factory, sock, BACKLOG, tls, proxy_protocol))
                continue
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
