"""Accepts connections that begin with a PROXY header, and gives them to a protocol with the client's address."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from ox.serve.config.request_limits import RequestLimits
from ox.serve.transport.proxy_header import ProxyHeaderError, read_proxy_header

log = logging.getLogger("ox.serve")

RETRY_S = 1.0  # after an error of the system, such as too many open files


class ProxyListener:
    """A listening socket. Its event loop is the running one.

    Args:
        factory: returns the protocol of a client with this address; None: that of the transport.
        sock: bound; the listener owns it.
        backlog: connections that wait to be accepted.
        tls: begins after the header; None for plain text.
        limits: the time for a header, and the number of connections that may be in it.
    """

    def __init__(
        self,
        factory: Callable[[str | None], asyncio.BaseProtocol],
        sock: socket.socket,
        backlog: int,
        tls: ssl.SSLContext | None,
        limits: RequestLimits,
    ) -> None:
        self._factory, self._socket, self._tls, self._limits = factory, sock, tls, limits
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        sock.setblocking(False)
        sock.listen(backlog)
        self._accepting = self._loop.create_task(self._accept())

    def close(self) -> None:
        """Stops accepting connections; those without a complete header are closed."""
        for task in (self._accepting, *self._handshakes):
            task.cancel()
        self._accepting.add_done_callback(lambda _: self._socket.close())

    async def _accept(self) -> None:
        while True:
            try:
                client, _ = await self._loop.sock_accept(self._socket)
            except OSError as error:
                log.error("cannot accept a connection: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            if len(self._handshakes) >= self._limits.connections:
                client.close()
                continue
            task = self._loop.create_task(self._begin(client))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _begin(self, client: socket.socket) -> None:
        """Reads the header, then begins TLS or the protocol."""
        handed_over = False
        try:
            async with asyncio.timeout(self._limits.request_s):
                peer = await read_proxy_header(client)
            if client.family != getattr(socket, "AF_UNIX", None):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handed_over = True
            await self._loop.connect_accepted_socket(lambda: self._factory(peer), client, ssl=self._tls)
        except TimeoutError:
            log.warning("a connection from %s was closed: no PROXY header in time", _name(client))
        except ProxyHeaderError as error:
            if str(error):  # without a byte it was a probe of the port
                log.warning("a connection from %s was closed: %s", _name(client), error)
        except OSError as error:  # the client has left, or its TLS handshake failed
            log.debug("a connection ended at its begin: %s", error)
        finally:
            if not handed_over:
                client.close()


def _name(client: socket.socket) -> str:
    """The address of the other end, for the log."""
    try:
        name = client.getpeername()
    except OSError:
        return "a client that has left"
    return str(name[0]) if isinstance(name, tuple) else "a Unix domain socket"
