"""Timeouts of a connection: slow senders, slow readers, idle clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ox.errors import ServeError
from ox.serve.config.request_limits import SLOWEST
from ox.serve.response_memory import Buffers
from ox.serve.transport.http.client_rate import ClientRate, buffers_full

if TYPE_CHECKING:
    from ox.serve.transport.http.connection import Connection
    from ox.serve.transport.http.exchange import Exchange


class Timeouts:
    """Enforces the timeouts of one connection.

    Attributes:
        client_rate: measures the client under memory pressure.
        first: the first exchange in the queue at the last check.
    """

    __slots__ = ("_connection", "client_rate", "first")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.client_rate: ClientRate | None = None
        self.first: Exchange | None = None

    def on_deadline(self, now: float) -> None:
        """Handles a slow reader, a slow sender, a rejected client or an idle one, after the deadline."""
        connection = self._connection
        sender, transport, limits = connection.sender, connection.transport, connection.limits
        if sender.paused:
            pending = sender.pending_bytes
            if pending > sender.pending_before - SLOWEST * limits.write_s:
                connection.listener_state.slow_clients += 1
                transport.abort()
            sender.pending_before, connection.deadline = pending, now + limits.write_s
        elif connection.exchanges:
            connection.deadline = now + limits.idle_s  # the client waits for the server
        elif connection.receiving and not connection.stopped:
            got = f"{connection.incoming.progress()} in {limits.request_s:g} s"
            what = "the request was not received in time (--limit request_s)"
            connection.reject(ServeError(what, status=408, got=got))
        elif transport.is_closing() or (connection.stopped and transport.can_write_eof()):
            transport.abort()
        else:  # TLS sends its close_notify first
            connection.stopped, connection.deadline = True, now + limits.linger_s
            transport.close()

    def enforce_rate(self) -> None:
        """See `ClientConnection`."""
        self._shed_blocked()
        connection = self._connection
        sender, listener_state = connection.sender, connection.listener_state
        if not sender.paused:
            self.client_rate = None
        elif self.client_rate is None or self.client_rate.episode != listener_state.pressure_episodes:
            size = sender.pending_bytes if sender.large is None else sender.large.size
            self.client_rate = listener_state.client_rate(size, sender.bytes_sent)
        elif self.client_rate.too_slow(sender.bytes_sent):
            listener_state.abort(connection, sender.pending_bytes)

    def _shed_blocked(self) -> None:
        """Replaces responses that wait for an earlier one by errors: the earlier one may itself wait for their memory.
        None of their bytes has been sent."""
        exchanges = self._connection.exchanges
        first = exchanges[0] if exchanges else None
        blocked = (
            first is not None
            and first is self.first
            and first.response is None
            and self._connection.sender.large is None
        )
        self.first = first
        for exchange in list(exchanges) if blocked else ():
            if isinstance(exchange.response, Buffers):
                self._connection.listener_state.replies[200] -= 1
                exchange.send_error(buffers_full())
