"""The request that a connection receives: what httptools reports of its parts, within the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import httptools

from ox.errors import ServeError
from ox.serve.transport.http.exchange import CONTINUE, Exchange, KeepAliveExchange, RejectedExchange
from ox.serve.transport.http.head_rules import (
    SINGLETON_HEADERS,
    body_too_large,
    check_body_length,
    check_version_and_host,
    head_too_large,
    wants_keep_alive,
)
from ox.serve.transport.http.root_path import without_root

if TYPE_CHECKING:
    from ox.serve.transport.http.connection import Connection


class IncomingRequest:
    """Parses the requests of a connection one after the other. httptools calls the `on_...` methods.

    Args:
        connection: gets each complete request as an `Exchange`.

    Attributes:
        parser: of httptools.
        target: the URL, at first with the server's root path.
        headers: by lower-case names.
        in_head: whether the head is incomplete.
        body: what has arrived of it.
        size: its bytes that count as buffered.
    """

    __slots__ = (
        "_body_skipped", "_connection", "_head_bytes", "_header_count", "_host", "_limits", "_rejection", "body",
        "headers", "in_head", "parser", "size", "target",
    )  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self._connection, self._limits = connection, connection.limits
        self.parser = httptools.HttpRequestParser(self)
        self._host = b"\0"  # the last valid host header; the initial value equals none
        self._reset()

    def _reset(self) -> None:
        self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self._head_bytes = self._header_count = 0
        self.in_head = True
        self.body: bytes | bytearray = b""
        self.size = 0
        self._rejection: ServeError | None = None
        self._body_skipped = False  # the parser skips the body of a request with an upgrade header

    def feed(self, data: bytes) -> None:
        """Parses data. The parser stops at a request for another protocol; the server goes on with HTTP/1.1, since it
        may ignore such a wish (RFC 9110 7.8).

        Raises:
            httptools.HttpParserError: it is not HTTP/1.1; `HttpParserCallbackError` for what the methods here raise.
        """
        unread, connection = memoryview(data), self._connection
        while unread and not connection.stopped:
            try:
                self.parser.feed_data(unread)
                return
            except httptools.HttpParserUpgrade as upgrade:
                unread = unread[upgrade.args[0] :]
            if not connection.stopped:
                self._ignore_upgrade()

    def _ignore_upgrade(self) -> None:
        """Continues after a request for another protocol. The parser has skipped the request's body, if there is one:
        then it gets the head again, without the header."""
        version, method = self.parser.get_http_version().encode(), self.parser.get_method()
        self.parser = httptools.HttpRequestParser(self)
        if self._body_skipped:
            lines = b"".join(b"%s: %s\r\n" % header for header in self.headers.items() if header[0] != b"upgrade")
            self.parser.feed_data(b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.target, version, lines))

    def progress(self) -> str:
        """Describes how much has arrived."""
        return "a part of the headers" if self.in_head else f"{self.size} bytes of a body"

    def drop_body(self) -> None:
        """Forgets what has arrived of the body."""
        self.body = b""
        self._connection.listener_state.buffered -= self.size
        self.size = 0

    # ---- httptools

    def on_message_begin(self) -> None:
        self._reset()
        connection = self._connection
        connection.receiving = True
        connection.deadline = connection.listener_state.loop.time() + self._limits.request_s

    def on_url(self, url: bytes) -> None:
        self.target += url
        if len(self.target) > self._limits.url:
            expected = f"at most {self._limits.url} bytes (--limit url)"
            raise ServeError("the URL is too long", status=414, expected=expected)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > self._limits.header_bytes or self._header_count > self._limits.header_count:
            raise head_too_large(self._limits)
        if not self.in_head:  # ignore trailers: the headers have been processed
            return
        name = name.lower()
        if value and value[-1] <= 32:  # the parser keeps trailing white space, which is not part of the value
            value = value.rstrip(b" \t")
        if name not in self.headers:
            self.headers[name] = value
        elif name in SINGLETON_HEADERS:
            raise ServeError(f"the header {name.decode('latin-1')} appears twice")
        else:
            self.headers[name] += b", " + value

    def on_headers_complete(self) -> None:
        self.in_head = False
        headers, connection = self.headers, self._connection
        listener_state = connection.listener_state
        if b"upgrade" in headers and self.parser.should_upgrade():
            has_body = b"content-length" in headers or b"transfer-encoding" in headers
            self._body_skipped = has_body and self.parser.get_method() != b"CONNECT"
            if self._body_skipped:  # `feed` does the rest
                return
        if listener_state.root_path:
            self.target = without_root(self.target, listener_state.root_path)
        host = headers.get(b"host")
        if host != self._host:
            check_version_and_host(self.parser.get_http_version(), host)
            if host is not None:
                self._host = host
        check_body_length(headers, self.parser.get_http_version, self._limits)
        if listener_state.admit is not None:
            try:
                peer = listener_state.client(connection.peer, headers)
                listener_state.admit(self.parser.get_method(), self.target, headers, peer)
            except ServeError as error:
                self._rejection = error
        if b"expect" in headers and self.parser.get_http_version() == "1.1":
            if headers[b"expect"].lower() != b"100-continue":
                raise ServeError("unknown expectation", status=417, expected="100-continue")
            if self._rejection is not None:
                raise self._rejection
            interim = Exchange(connection, b"", b"", headers, b"", True)
            interim.response = CONTINUE
            connection.exchanges.append(interim)
            connection.process_queue()

    def on_body(self, data: bytes) -> None:
        if self._rejection is not None:
            return
        self.size += len(data)
        listener_state = self._connection.listener_state
        listener_state.buffered += len(data)
        if self.size > self._limits.body:
            raise body_too_large(self._limits)
        if listener_state.buffered > self._limits.buffered:
            what = "the server's request buffers are full (--limit buffered)"
            raise ServeError(what, status=503, hint="again in a moment")
        if not self.body:
            self.body = data  # usually the complete body
        elif isinstance(self.body, bytearray):
            self.body += data
        else:
            # Grow with the data: preallocating the announced length would cost memory that the client may never send,
            # and a list of small chunks could take forty times their bytes.
            self.body = bytearray(self.body) + data

    def on_message_complete(self) -> None:
        if self._body_skipped:
            return
        self.in_head = True
        body = self.body
        self.body = b""
        self.size = 0  # the exchange counts it from here on
        connection, method = self._connection, self.parser.get_method()
        keep_alive = self.parser.should_keep_alive() and method != b"CONNECT"  # after which a client may send anything
        kind = Exchange if self._rejection is None else RejectedExchange
        if keep_alive and self.parser.get_http_version() == "1.0":
            keep_alive = self._rejection is None and wants_keep_alive(self.headers.get(b"connection", b""))
            kind = KeepAliveExchange if keep_alive else kind
            connection.request_start = b""  # the cache holds heads of HTTP/1.1 only
        exchange = kind(connection, method, self.target, self.headers, cast(bytes, body), keep_alive)
        if isinstance(exchange, RejectedExchange) and self._rejection is not None:
            exchange.error = self._rejection
        connection.receive(exchange)
