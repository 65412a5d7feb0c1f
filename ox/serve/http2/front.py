"""How a connection becomes HTTP/2: on a port of its own, or taken over from HTTP/1.1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ox.serve.http.front import Front
from ox.serve.http2.connection import Connection
from ox.serve.http2.headers import Head, Maker


class Http2:
    """Makes connections, which count among the clients of an HTTP/1.1 front: its limits, deadlines and draining hold.

    Args:
        front: whose limits count, and whose handler answers what `plan` gives to `Plain`.
        plan: says, once for each distinct head, which stream answers such requests.
    """

    def __init__(self, front: Front, plan: Callable[[Head], Maker]) -> None:
        self.front, self.plan = front, plan

    def __call__(self) -> Connection:
        """For a listener that speaks nothing else."""
        return Connection(self.front, self.plan)

    def upgrade(self, transport: asyncio.Transport, data: bytes) -> asyncio.Protocol:
        """Goes on with a connection whose first bytes are `data`."""
        connection = self()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(data)
        return connection
