"""Creates HTTP/2 connections: on a separate port, or from an HTTP/1.1 connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ox.serve.transport.http.listener_state import ListenerState
from ox.serve.transport.http2.connection import Connection
from ox.serve.transport.http2.headers import Head, StreamFactory


class Http2:
    """Creates connections that share limits, deadlines and draining with an HTTP/1.1 listener.

    Args:
        listener_state: its limits, and its handler for `HttpStream`.
        route: returns the stream factory for a head; called once per distinct head.
    """

    def __init__(self, listener_state: ListenerState, route: Callable[[Head], StreamFactory]) -> None:
        self.listener_state, self.route = listener_state, route

    def __call__(self) -> Connection:
        """The protocol factory of a listener for HTTP/2 only."""
        return Connection(self.listener_state, self.route)

    def upgrade(self, transport: asyncio.Transport, data: bytes) -> asyncio.Protocol:
        """Takes over a connection whose first bytes are `data`."""
        connection = self()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(data)
        return connection
