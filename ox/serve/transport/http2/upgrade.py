"""Creates HTTP/2 connections: on a separate port, or from an HTTP/1.1 connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ox.serve.transport.http.listener_state import ListenerState
from ox.serve.transport.http.root_path import without_root
from ox.serve.transport.http2.connection import Connection
from ox.serve.transport.http2.headers import Head, StreamFactory


class Http2:
    """Creates connections that share limits, deadlines and draining with an HTTP/1.1 listener.

    Args:
        listener_state: its limits, and its handler for `HttpStream`.
        route: returns the stream factory for a head; called once per distinct head.
    """

    def __init__(self, listener_state: ListenerState, route: Callable[[Head], StreamFactory]) -> None:
        self.listener_state, self._route = listener_state, route

    def __call__(self, peer: str | None = None) -> Connection:
        """The protocol factory of a listener for HTTP/2 only; see `Connection` for the argument."""
        route = self._without_root if self.listener_state.root_path else self._route
        return Connection(self.listener_state, route, peer)

    def _without_root(self, head: Head) -> StreamFactory:
        head.target = without_root(head.target, self.listener_state.root_path)
        return self._route(head)

    def upgrade(self, transport: asyncio.Transport, data: bytes, peer: str) -> asyncio.Protocol:
        """Takes over a connection of the client `peer` whose first bytes are `data`."""
        connection = self(peer)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(data)
        return connection
