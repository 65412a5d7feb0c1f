"""A response that is sent in parts, as they come: its length is not known when it begins."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ox.serve.transport.http.connection import Connection
    from ox.serve.transport.http.exchange import Exchange

HIGH_WATER = 16 << 10  # bytes that wait for a client; beyond them the producer is asked to pause
UNSENT = 64 << 10  # bytes that the system may hold for it beside those that are on their way
LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", None)  # of Linux and macOS


class ResponseStream(ABC):
    """The body of a streamed response; used on the event loop only. `Exchange.stream_response` begins one.

    Attributes:
        paused: the client reads slowly. The producer may still write, and what it writes is kept.
        on_flow: called with True when the producer should pause, and with False when it may go on.
        on_cancel: called once if the client leaves before the end; later writes are ignored.
    """

    __slots__ = ("_exchange", "_status", "bytes_written", "on_cancel", "on_flow", "paused")

    def __init__(self, exchange: Exchange, status: int) -> None:
        self._exchange, self._status = exchange, status
        self.bytes_written = 0
        self.paused = False
        self.on_flow: Callable[[bool], None] | None = None
        self.on_cancel: Callable[[], None] | None = None
        exchange.on_cancel = self._cancelled
        exchange.connection.listener_state.replies[status] += 1

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Sends a part, which is not empty."""

    @abstractmethod
    def end(self) -> None:
        """Ends the response. Call it once."""

    def set_paused(self, paused: bool) -> None:
        """Tells the producer when the client begins or stops to read slowly."""
        if paused is not self.paused:
            self.paused = paused
            if self.on_flow is not None:
                self.on_flow(paused)

    def _finish(self) -> None:
        self._exchange.on_cancel = None
        self._log()

    def _cancelled(self) -> None:
        self._exchange.on_cancel = None
        fields = self._exchange.log_fields or {}
        self._exchange.log_fields = {**fields, "client_left": True}
        self._log()
        if self.on_cancel is not None:
            self.on_cancel()

    def _log(self) -> None:
        access_log = self._exchange.connection.listener_state.access_log
        if access_log is not None:
            access_log.line(self._exchange, self._status, self.bytes_written)


class Http1ResponseStream(ResponseStream):
    """Over HTTP/1.1: chunked, or up to the end of the connection for a client of HTTP/1.0.

    Parts wait in `parts` while an earlier response of the connection is not sent, or the client reads slowly.
    """

    __slots__ = ("_chunked", "_connection", "ended", "parts")

    def __init__(self, exchange: Exchange, status: int, head: bytes, chunked: bool) -> None:
        super().__init__(exchange, status)
        self._connection: Connection = exchange.connection
        self._chunked = chunked
        self.parts = [head]
        self.ended = False
        self._connection.transport.set_write_buffer_limits(HIGH_WATER)
        _limit_unsent(self._connection.transport, UNSENT)

    def write(self, data: bytes) -> None:
        self.bytes_written += len(data)
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._connection.writes(self._exchange) and not self.parts:
            self._connection.transport.write(data)
        else:
            self.parts.append(data)

    def end(self) -> None:
        if self._chunked:
            self.parts.append(b"0\r\n\r\n")
        self.ended = True
        if self._exchange.keep_alive:
            _limit_unsent(self._connection.transport, 0)  # the default again, for responses of another kind
        self._finish()
        self._connection.process_queue()

    def take(self) -> bytes:
        """What waits to be written."""
        data = b"".join(self.parts)
        self.parts.clear()
        return data

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written."""
        return sum(map(len, self.parts))


def _limit_unsent(transport: asyncio.Transport, size: int) -> None:
    """How much the system may hold of what was written and is not on its way. It would take some MiB of a stream that
    nobody reads, whose producer would not be asked to pause before that."""
    link = transport.get_extra_info("socket")
    if LOWAT is None or transport.is_closing() or link is None:
        return
    if link.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):  # of a connection that has just ended
            link.setsockopt(socket.IPPROTO_TCP, LOWAT, size)
