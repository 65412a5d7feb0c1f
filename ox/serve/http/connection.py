"""HTTP/1.1 on a bare asyncio.Protocol: keep-alive, pipelining in order, limits and timeouts on everything.

No framework stands here because none keeps up with the models (docs/serving.md has the figures). The layer knows
nothing of inference: a whole request becomes an `Exchange`, the handler calls its `reply` now or later, and answers
leave in the order of the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from ox.errors import OxError, ServeError
from ox.serve.address import peer_of
from ox.serve.answer_memory import Parts
from ox.serve.http.exchange import CONTINUE, Exchange, KeepAlive, Refused
from ox.serve.http.heads import Head
from ox.serve.http.patience import Patience
from ox.serve.http.rules import SINGLE, blank, body_too_large, framed, head_too_large, introduced, persists
from ox.serve.http.sending import Sending

if TYPE_CHECKING:
    from ox.serve.http.front import Front

log = logging.getLogger("ox.serve")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # what a client of HTTP/2 sends first
TRIES = 8  # of remembering the heads of a connection on which none has come twice


class Connection(Patience):
    """One client. httptools calls the `on_...` methods while it parses."""

    def __init__(self, front: Front) -> None:
        self.front, self.limits = front, front.limits
        self.parser = httptools.HttpRequestParser(self)
        self.exchanges: deque[Exchange] = deque()  # in order of arrival, not yet written
        self.backlog: deque[Exchange] = deque()  # those of them that nobody has begun
        self.preface: bytes | None = None if front.upgrade is None else b""  # what may yet become HTTP/2's
        self.receiving = False  # a request has begun and is not yet whole
        self.stopped = False  # nothing more is read
        self.half_closed = False  # the client will send no more
        self.write_paused = self.read_paused = self.advancing = False
        self.host = b"\0"  # that the client last named, once found to be one
        self.fresh = b""  # what the parser is given at the beginning of a request
        self.tries = TRIES
        self.messages = 0  # requests that arrived whole
        self.raw = 0  # bytes since the last of them, counted by what the socket gave
        self.unsent = self.handed = 0
        self.sending: Sending | None = None  # a large answer that has begun to leave; writing is paused meanwhile
        self._begin()

    @property
    def peer(self) -> str:
        """The client's address, without its port; "" where there is none."""
        return peer_of(self.transport)

    def _begin(self) -> None:
        self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self.head_bytes = self.header_count = 0
        self.in_head = True
        self.body: bytes | bytearray = b""
        self.size = 0
        self.refusal: ServeError | None = None
        self.passed_over = False  # it has a body that the parser does not read, because of an upgrade

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.deadline = self.front.loop.time() + self.limits.idle_s
        self.front.opened(self)
        if len(self.front.connections) > self.limits.connections:
            expected = f"at most {self.limits.connections} (--limit connections)"
            self._refuse(ServeError("too many connections", status=503, expected=expected))
        elif self.preface is not None:
            tls = transport.get_extra_info("ssl_object")
            if tls is not None and tls.selected_alpn_protocol() == "h2":
                self._hand_over(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self.stopped = True
        self.front.closed(self)
        self.front.buffered -= self.size + sum(len(exchange.body) for exchange in self.exchanges)
        for exchange in self.exchanges:
            if exchange.on_abandon is not None:
                exchange.on_abandon()
        self.exchanges.clear()
        self.backlog.clear()
        # The parser and this refer to one another, so only a collection will free what is left here.
        self.sending = self.first = None
        self.body, self.fresh = b"", b""
        self.front.hold(-self.unread)
        self.unread = 0

    def data_received(self, data: bytes) -> None:
        if self.stopped:
            self.receiving = True  # so that closing waits until it is read away
            return
        if self.preface is not None:
            data = self._without_preface(data)
            if not data:
                return
        messages = self.messages
        if not self.receiving and self.tries:
            head = self.front.heads.find(data)
            if head is not None and self.front.buffered + len(data) <= self.limits.buffered:
                self._known(head, data)
                return
            self.fresh = data
        try:
            # The parser skips blank lines before a request without a word.
            if not self.receiving and data[0] in b"\r\n" and blank(data) > self.limits.header_bytes:
                raise head_too_large(self.limits)
            self.parser.feed_data(data)
            self.raw = self.raw + len(data) if messages == self.messages else 0
            if self.in_head and self.raw > self.limits.header_bytes:
                raise head_too_large(self.limits)
            # Chunk sizes, extensions and trailers are not body, so the body's own limit does not see them.
            if self.raw > 2 * self.limits.body + 2 * self.limits.header_bytes:
                raise body_too_large(self.limits)
        except httptools.HttpParserUpgrade as upgrade:
            # The request was answered as if it had not asked to upgrade; what follows is in another language.
            self.stopped = not self.passed_over
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserCallbackError as error:
            self._refuse(error.__context__)
        except httptools.HttpParserError as error:
            self._refuse(ServeError("the request is not valid HTTP/1.1", got=str(error)))
        except ServeError as error:
            self._refuse(error)
        self.fresh = b""
        if self.passed_over and not self.stopped:
            self._again(rest)

    def _again(self, rest: bytes) -> None:
        """Reads a request as if it did not ask to upgrade: the parser has passed over its body, which begins in `rest`.

        It is the last one of its connection, as it is without a body.
        """
        headers = {**self.headers, b"connection": b"close"}
        del headers[b"upgrade"]
        lines = b"".join(b"%s: %s\r\n" % header for header in headers.items())
        version = self.parser.get_http_version().encode()
        head = b"%s %s HTTP/%s\r\n%s\r\n" % (self.parser.get_method(), self.target, version, lines)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    def _known(self, head: Head, data: bytes) -> None:
        """A whole request whose head was parsed before. The parser stands between two requests and stays there."""
        self.tries = TRIES
        self.messages += 1
        self.raw = 0
        body = data[head.begin :]
        exchange = Exchange(self, head.method, head.target, head.headers, body, True)
        if self.front.admit is not None:
            try:
                self.front.admit(head.method, head.target, head.headers, self.peer)
            except ServeError as error:
                exchange = Refused(self, head.method, head.target, head.headers, b"", True)
                exchange.error = error
        self.front.buffered += len(exchange.body)
        self._arrived(exchange)

    def _without_preface(self, data: bytes) -> bytes:
        """The bytes for HTTP/1.1; none as long as they may become HTTP/2's preface, and once they have."""
        data = cast(bytes, self.preface) + data
        if not data.startswith(PREFACE):
            undecided = PREFACE.startswith(data)
            self.preface = data if undecided else None
            return b"" if undecided else data
        self._hand_over(data)
        return b""

    def _hand_over(self, data: bytes) -> None:
        """From here on the transport speaks HTTP/2, to another protocol."""
        self.preface, self.stopped = None, True
        self.front.closed(self)
        assert self.front.upgrade is not None
        self.transport.set_protocol(self.front.upgrade(self.transport, data))

    def eof_received(self) -> bool:
        self.half_closed = True
        if self.receiving and not self.stopped:
            self._refuse(ServeError("the request ended before it was whole", got=self._so_far()))
        return bool(self.exchanges or self.sending)  # whoever closes one half still gets the answers

    # ---- httptools

    def on_message_begin(self) -> None:
        self._begin()
        self.receiving = True
        self.deadline = self.front.loop.time() + self.limits.request_s

    def on_url(self, url: bytes) -> None:
        self.target += url
        if len(self.target) > self.limits.url:
            expected = f"at most {self.limits.url} bytes (--limit url)"
            raise ServeError("the URL is too long", status=414, expected=expected)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.header_count += 1
        self.head_bytes += len(name) + len(value)
        if self.head_bytes > self.limits.header_bytes or self.header_count > self.limits.header_count:
            raise head_too_large(self.limits)
        if not self.in_head:  # a trailer: it may not change what was already decided
            return
        name = name.lower()
        if value and value[-1] <= 32:  # the parser leaves white space at the end, which is no part of a value
            value = value.rstrip(b" \t")
        if name not in self.headers:
            self.headers[name] = value
        elif name in SINGLE:
            raise ServeError(f"the header {name.decode('latin-1')} appears twice")
        else:
            self.headers[name] += b", " + value

    def on_headers_complete(self) -> None:
        self.in_head = False
        headers = self.headers
        if b"upgrade" in headers and self.parser.should_upgrade():
            self.passed_over = b"content-length" in headers or b"transfer-encoding" in headers
            if self.passed_over:  # `_again` does the rest
                return
        host = headers.get(b"host")
        if host != self.host:
            introduced(self.parser.get_http_version(), host)
            if host is not None:
                self.host = host
        framed(headers, self.parser.get_http_version, self.limits)
        if self.front.admit is not None:
            try:
                self.front.admit(self.parser.get_method(), self.target, headers, self.peer)
            except ServeError as error:
                self.refusal = error
        if b"expect" in headers and self.parser.get_http_version() == "1.1":
            if headers[b"expect"].lower() != b"100-continue":
                raise ServeError("unknown expectation", status=417, expected="100-continue")
            if self.refusal is not None:
                raise self.refusal
            interim = Exchange(self, b"", b"", headers, b"", True)
            interim.response = CONTINUE
            self.exchanges.append(interim)
            self.advance()

    def on_body(self, data: bytes) -> None:
        if self.refusal is not None:
            return
        self.size += len(data)
        self.front.buffered += len(data)
        if self.size > self.limits.body:
            raise body_too_large(self.limits)
        if self.front.buffered > self.limits.buffered:
            what = "the server holds as many request bodies as it may (--limit buffered)"
            raise ServeError(what, status=503, hint="again in a moment")
        if not self.body:
            self.body = data  # nearly always whole
        elif isinstance(self.body, bytearray):
            self.body += data
        else:
            # It grows by what has come: room for all that was announced would cost as much, sent or not.
            # And a list of pieces could cost forty times their bytes.
            self.body = bytearray(self.body) + data

    def on_message_complete(self) -> None:
        if self.passed_over:
            return
        self.messages += 1
        self.receiving = False
        self.in_head = True
        body = self.body
        self.body = b""
        self.size = 0  # from here on the exchange accounts for it
        keep = self.parser.should_keep_alive() and not self.parser.should_upgrade()
        kind = Exchange if self.refusal is None else Refused
        if keep and self.parser.get_http_version() == "1.0":
            keep = self.refusal is None and persists(self.headers.get(b"connection", b""))
            kind = KeepAlive if keep else kind
            self.fresh = b""  # known heads are those of HTTP/1.1
        exchange = kind(self, self.parser.get_method(), self.target, self.headers, cast(bytes, body), keep)
        if isinstance(exchange, Refused) and self.refusal is not None:
            exchange.error = self.refusal
        if self.fresh:
            if keep:
                self.tries -= 1
                self.front.heads.remember(self.fresh, exchange.method, self.target, self.headers)
            self.fresh = b""
        if not keep:
            self.stopped = True  # nothing after the last request is one (RFC 9112 9.6)
        self._arrived(exchange)

    # ---- the order of things

    def drain(self) -> None:
        """The server stops: closes, unless something is being received, worked on or written."""
        if not (self.receiving or self.exchanges or self.sending or self.transport.get_write_buffer_size()):
            self.transport.close()

    def _arrived(self, exchange: Exchange) -> None:
        """A request is whole."""
        if self.exchanges or self.write_paused or self.advancing:
            self.exchanges.append(exchange)
            self.backlog.append(exchange)
            self.advance()
            return
        self.exchanges.append(exchange)  # nearly always the only one
        self.advancing = True
        self._handle(exchange)
        self.advancing = False
        if exchange.response is not None:
            self.advance()

    def advance(self) -> None:
        """Writes the answers whose turn it is and begins the requests that may begin. Never recurses, however many."""
        if self.advancing:
            return
        exchanges, backlog = self.exchanges, self.backlog
        if len(exchanges) == 1 and not (self.read_paused or self.write_paused or self.half_closed):
            exchange = exchanges[0]
            response = exchange.response
            if exchange.keep_alive and type(response) is bytes:  # nearly always all that there is to do
                exchanges.clear()
                self.front.buffered -= len(exchange.body)
                self.transport.write(response)
                if not self.write_paused:
                    if not (self.receiving or self.stopped):
                        self.deadline = self.front.loop.time() + self.limits.idle_s
                    return
        self.advancing = True
        while not self.write_paused:
            if self.sending is not None:
                self.send_on(self.sending)
            elif exchanges and (response := exchanges[0].response) is not None:
                exchange = exchanges.popleft()
                self.front.buffered -= len(exchange.body)
                if isinstance(response, Parts):
                    self.sending = Sending(response, exchange.keep_alive)
                    exchange.response = None  # nothing else may hold it once its last piece has left
                    del response
                    continue
                self.transport.write(response)
                if not exchange.keep_alive:
                    self.finish()
            elif backlog and len(exchanges) - len(backlog) < self.limits.pipeline:
                self._handle(backlog.popleft())
            else:
                break
        self.advancing = False
        if not (exchanges or self.sending):
            if self.half_closed or (self.front.draining and not self.receiving):
                self.transport.close()
            elif not (self.receiving or self.stopped):
                self.deadline = self.front.loop.time() + self.limits.idle_s
        if exchanges or self.write_paused or self.unread:
            self.recount()
        busy = bool(backlog) or self.write_paused
        if busy is not self.read_paused and not self.transport.is_closing():
            self.read_paused = busy
            if busy:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _handle(self, exchange: Exchange) -> None:
        if type(exchange) is Refused:
            exchange.refuse(exchange.error)
            return
        try:
            self.front.handle(exchange)
        except OxError as error:
            exchange.refuse(error)
        except Exception:
            exchange.fail()

    def _refuse(self, error: BaseException | None) -> None:
        """Answers what was not a whole valid request, in its turn, and stops reading."""
        if not isinstance(error, OxError):
            log.error("a connection failed", exc_info=error)
            error = ServeError("the server failed on this request", status=500, hint="its log")
        self.stopped = True
        self.receiving = True  # whatever else arrives belongs to it and is thrown away
        self.body = b""
        self.front.buffered -= self.size
        self.size = 0
        exchange = Exchange(self, b"", b"", {}, b"", False)
        self.exchanges.append(exchange)
        exchange.refuse(error)
