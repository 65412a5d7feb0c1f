"""HTTP/1.1 on a bare asyncio.Protocol: keep-alive, pipelining in order, limits and timeouts on everything.

It uses no framework, because none is as fast as small models (docs/serving.md has the measurements). This layer does
not depend on inference: a complete request becomes an `Exchange`, the handler calls its `reply` now or later, and
responses are sent in the order of the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, cast

import httptools

from ox.errors import OxError, ServeError
from ox.serve.response_memory import Buffers
from ox.serve.transport.address import client_address
from ox.serve.transport.http.exchange import Exchange, RejectedExchange
from ox.serve.transport.http.head_cache import Head
from ox.serve.transport.http.head_rules import body_too_large, head_too_large, leading_blank_bytes
from ox.serve.transport.http.incoming_request import IncomingRequest
from ox.serve.transport.http.response_stream import Http1ResponseStream
from ox.serve.transport.http.root_path import without_root
from ox.serve.transport.http.sender import LargeResponse, Sender
from ox.serve.transport.http.timeouts import Timeouts

if TYPE_CHECKING:
    from ox.serve.transport.http.listener_state import ListenerState

log = logging.getLogger("ox.serve")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # the connection preface of HTTP/2
TLS_HANDSHAKE = b"\x16\x03"  # the first bytes of a client that speaks TLS
MAX_CACHE_MISSES = 8  # heads of a connection that are cached without a hit


class Connection(asyncio.Protocol):
    """The connection of one client (`ClientConnection`).

    Args:
        peer: the client's address, if a PROXY header has told it; None: that of the transport.
    """

    transport: asyncio.Transport
    deadline: float

    def __init__(self, listener_state: ListenerState, peer: str | None = None) -> None:
        self.listener_state, self.limits, self._peer = listener_state, listener_state.limits, peer
        self.sender, self.timeouts = Sender(listener_state), Timeouts(self)
        self.incoming = IncomingRequest(self)
        self.exchanges: deque[Exchange] = deque()  # in order of arrival, responses not yet written
        self.unhandled: deque[Exchange] = deque()  # those that the handler has not received yet
        # bytes that may be the start of HTTP/2's preface
        self.preface: bytes | None = None if listener_state.upgrade is None else b""
        self.receiving = False  # a request has begun and is incomplete
        self.stopped = False  # reads no more requests
        self.half_closed = False  # the client has closed its sending side
        self.cancel_at_eof = False  # a client that has done so counts as gone
        self.read_paused = self.processing = False
        self.request_start = b""  # bytes that the parser gets at the start of a request
        self.cache_misses_left = MAX_CACHE_MISSES
        self.message_count = 0  # complete requests
        self.raw_bytes = 0  # bytes read from the socket since the last of them

    @property
    def peer(self) -> str:
        """The IP address at the other end, without its port; "" for a Unix domain socket."""
        return client_address(self.transport) if self._peer is None else self._peer

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = self.sender.transport = cast(asyncio.Transport, transport)
        self.deadline = self.listener_state.loop.time() + self.limits.idle_s
        self.listener_state.add_connection(self)
        if len(self.listener_state.connections) > self.limits.connections:
            expected = f"at most {self.limits.connections} (--limit connections)"
            self.reject(ServeError("too many connections", status=503, expected=expected))
        elif self.preface is not None:
            tls = transport.get_extra_info("ssl_object")
            if tls is not None and tls.selected_alpn_protocol() == "h2":
                self._switch_to_http2(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self.stopped = True
        self.listener_state.remove_connection(self)
        self.listener_state.buffered -= sum(len(exchange.body) for exchange in self.exchanges)
        for exchange in self.exchanges:
            if exchange.on_cancel is not None:
                exchange.on_cancel()
        self.exchanges.clear()
        self.unhandled.clear()
        # The parser and this object form a reference cycle: free the large objects before a garbage collection.
        self.timeouts.first = None
        self.incoming.drop_body()
        self.request_start = b""
        self.sender.close()

    def data_received(self, data: bytes) -> None:
        if self.stopped:
            self.receiving = True  # so that closing waits until the data is read and dropped
            return
        if self.preface is not None:
            data = self._check_preface(data)
            if not data:
                return
        messages = self.message_count
        if not self.receiving and self.cache_misses_left:
            head = self.listener_state.head_cache.find(data)
            if head is not None and self.listener_state.buffered + len(data) <= self.limits.buffered:
                self._receive_cached(head, data)
                return
            self.request_start = data
        try:
            # The parser skips blank lines before a request and does not report them.
            if not self.receiving and data[0] in b"\r\n" and leading_blank_bytes(data) > self.limits.header_bytes:
                raise head_too_large(self.limits)
            self.incoming.feed(data)
            self.raw_bytes = self.raw_bytes + len(data) if messages == self.message_count else 0
            if self.incoming.in_head and self.raw_bytes > self.limits.header_bytes:
                raise head_too_large(self.limits)
            # The body limit does not count chunk sizes, extensions and trailers.
            if self.raw_bytes > 2 * self.limits.body + 2 * self.limits.header_bytes:
                raise body_too_large(self.limits)
        except httptools.HttpParserCallbackError as error:
            self.reject(error.__context__)
        except httptools.HttpParserError as error:
            if data.startswith(TLS_HANDSHAKE):
                hint = "http://, or ox serve --tls-cert and --tls-key"
                self.reject(ServeError("a client spoke TLS to a port without TLS", hint=hint))
            else:
                self.reject(ServeError("the request is not valid HTTP/1.1", got=str(error)))
        except ServeError as error:
            self.reject(error)
        self.request_start = b""

    def _receive_cached(self, head: Head, data: bytes) -> None:
        """Handles a complete request whose head is in the cache, without the parser, which is between two requests."""
        self.cache_misses_left = MAX_CACHE_MISSES
        self.message_count += 1
        self.raw_bytes = 0
        body = data[head.body_start :]
        exchange = Exchange(self, head.method, head.target, head.headers, body, True)
        if self.listener_state.admit is not None:
            try:
                self.listener_state.admit(head.method, head.target, head.headers, exchange.peer)
            except ServeError as error:
                exchange = RejectedExchange(self, head.method, head.target, head.headers, b"", True)
                exchange.error = error
        self.listener_state.buffered += len(exchange.body)
        self._enqueue(exchange)

    def _check_preface(self, data: bytes) -> bytes:
        """Returns the bytes for HTTP/1.1; b"" while they may be HTTP/2's preface, and after the switch to HTTP/2."""
        data = cast(bytes, self.preface) + data
        if not data.startswith(PREFACE):
            undecided = PREFACE.startswith(data)
            self.preface = data if undecided else None
            return b"" if undecided else data
        self._switch_to_http2(data)
        return b""

    def _switch_to_http2(self, data: bytes) -> None:
        """Gives the transport to the HTTP/2 protocol."""
        self.preface, self.stopped = None, True
        self.listener_state.remove_connection(self)
        assert self.listener_state.upgrade is not None
        self.transport.set_protocol(self.listener_state.upgrade(self.transport, data, self.peer))

    def eof_received(self) -> bool:
        self.half_closed = True
        if self.receiving and not self.stopped:
            self.reject(ServeError("the request is incomplete", got=self.incoming.progress()))
        elif self.cancel_at_eof:
            return False
        return bool(self.exchanges or self.sender.large)  # a half-closed client still gets its responses

    # ---- a client that reads its responses slowly: see `ClientConnection`

    def pause_writing(self) -> None:
        self.sender.pause()
        if self.exchanges and isinstance(stream := self.exchanges[0].response, Http1ResponseStream):
            stream.set_paused(True)
        self.deadline = self.listener_state.loop.time() + self.limits.write_s
        self.update_unread()

    def resume_writing(self) -> None:
        self.sender.paused = False
        self.deadline = self.listener_state.loop.time() + self.limits.idle_s
        if self.sender.large is None:
            self.timeouts.client_rate = None
        self.process_queue()

    @property
    def unread(self) -> int:
        """Bytes of responses that the client has not read."""
        return self.sender.unread

    def update_unread(self) -> None:
        """Counts responses that the client does not read, or that wait for an earlier one."""
        handled = islice(self.exchanges, len(self.exchanges) - len(self.unhandled))
        # `ResponseMemory` counts large ones
        waiting = 0
        for each in handled:
            response = each.response
            if type(response) is bytes:
                waiting += len(response)
            elif isinstance(response, Http1ResponseStream):
                waiting += response.waiting
        self.sender.update_unread(waiting)

    def recently_sent(self) -> int:
        """Bytes that the client has read since the last pause."""
        return self.sender.recently_sent()

    def on_deadline(self, now: float) -> None:
        """Called by the listener after `deadline`."""
        self.timeouts.on_deadline(now)

    def enforce_rate(self) -> None:
        """Called by the listener under memory pressure."""
        self.timeouts.enforce_rate()

    # ---- requests and responses in order

    def drain(self) -> None:
        """Closes the connection if it is idle. Otherwise it closes after its last response."""
        if not (self.receiving or self.exchanges or self.sender.large or self.transport.get_write_buffer_size()):
            self.transport.close()

    def writes(self, exchange: Exchange) -> bool:
        """Whether parts of its response can be written now: all earlier responses are sent, and the client reads."""
        return not self.sender.paused and bool(self.exchanges) and self.exchanges[0] is exchange

    def receive(self, exchange: Exchange) -> None:
        """A request is complete."""
        self.message_count += 1
        self.receiving = False
        if self.request_start:
            if exchange.keep_alive:
                self.cache_misses_left -= 1
                head = self.request_start, exchange.method, exchange.target, exchange.headers
                self.listener_state.head_cache.add(*head)
            self.request_start = b""
        if not exchange.keep_alive:
            self.stopped = True  # ignore data after the last request (RFC 9112 9.6)
        self._enqueue(exchange)

    def _enqueue(self, exchange: Exchange) -> None:
        """Handles a complete request now, or queues it behind earlier ones."""
        if self.exchanges or self.sender.paused or self.processing:
            self.exchanges.append(exchange)
            self.unhandled.append(exchange)
            self.process_queue()
            return
        self.exchanges.append(exchange)  # usually the only one
        self.processing = True
        self._handle(exchange)
        self.processing = False
        if exchange.response is not None:
            self.process_queue()

    def process_queue(self) -> None:
        """Writes responses in order and starts waiting requests. It does not recurse."""
        if self.processing:
            return
        exchanges, backlog, sender = self.exchanges, self.unhandled, self.sender
        if len(exchanges) == 1 and not (self.read_paused or sender.paused or self.half_closed):
            exchange = exchanges[0]
            response = exchange.response
            if exchange.keep_alive and type(response) is bytes:  # usually there is nothing else to do
                exchanges.clear()
                self.listener_state.buffered -= len(exchange.body)
                self.transport.write(response)
                if not sender.paused:
                    if not (self.receiving or self.stopped):
                        self.deadline = self.listener_state.loop.time() + self.limits.idle_s
                    return
        self.processing = True
        while not sender.paused:
            if (large := sender.large) is not None:
                if not sender.send_chunk(large) and not large.keep_alive:
                    self._close_after_response()
            elif exchanges and (response := exchanges[0].response) is not None:
                exchange = exchanges[0]
                if isinstance(response, Http1ResponseStream):
                    if response.parts:
                        self.transport.write(response.take())
                    if not response.ended:
                        response.set_paused(sender.paused)
                        break
                    exchanges.popleft()
                    if not exchange.keep_alive:
                        self._close_after_response()
                    continue
                exchanges.popleft()
                self.listener_state.buffered -= len(exchange.body)
                if isinstance(response, Buffers):
                    sender.large = LargeResponse(response, exchange.keep_alive)
                    exchange.response = None  # no other reference, so that its memory is free after the last chunk
                    del response
                    continue
                self.transport.write(response)
                if not exchange.keep_alive:
                    self._close_after_response()
            elif backlog and len(exchanges) - len(backlog) < self.limits.pipeline:
                self._handle(backlog.popleft())
            else:
                break
        self.processing = False
        if not (exchanges or sender.large):
            if self.half_closed or (self.listener_state.draining and not self.receiving):
                self.transport.close()
            elif not (self.receiving or self.stopped):
                self.deadline = self.listener_state.loop.time() + self.limits.idle_s
        if exchanges or sender.paused or sender.unread or sender.copied:
            self.update_unread()
        busy = bool(backlog) or sender.paused
        if busy is not self.read_paused and not self.transport.is_closing():
            self.read_paused = busy
            if busy:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _close_after_response(self) -> None:
        """Closes after the last response of this connection."""
        self.stopped = True
        self.deadline = self.listener_state.loop.time() + self.limits.write_s
        for exchange in self.exchanges:
            self.listener_state.buffered -= len(exchange.body)
            if exchange.on_cancel is not None:
                exchange.on_cancel()
        self.exchanges.clear()
        self.unhandled.clear()
        if not self.receiving or self.half_closed:
            self.transport.close()  # after the write buffer is flushed
        elif not self.transport.is_closing():
            # Closing with unread bytes resets the connection, and the client might not see the error response.
            self.deadline = self.listener_state.loop.time() + self.limits.linger_s
            if self.transport.can_write_eof():  # TLS cannot half-close; its client uses content-length
                self.transport.write_eof()

    def _handle(self, exchange: Exchange) -> None:
        if type(exchange) is RejectedExchange:
            exchange.send_error(exchange.error)
            return
        try:
            self.listener_state.handle(exchange)
        except OxError as error:
            exchange.send_error(error)
        except Exception:
            exchange.send_internal_error()

    def reject(self, error: BaseException | None) -> None:
        """Queues an error response for an invalid or incomplete request, and stops reading."""
        if not isinstance(error, OxError):
            log.error("exception in an HTTP connection", exc_info=error)
            error = ServeError("the server failed on this request", status=500, hint="its log")
        incoming = self.incoming
        headers = incoming.headers if self.receiving else {}
        target, root = incoming.target, self.listener_state.root_path
        if incoming.in_head:
            target = without_root(target, root)
        self.stopped = True
        self.receiving = True  # drop all further data
        incoming.drop_body()
        exchange = Exchange(self, b"", target, headers, b"", False)  # the error has the form of its route
        self.exchanges.append(exchange)
        exchange.send_error(error)
