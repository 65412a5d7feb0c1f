"""One HTTP request and its response."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any

from ox.errors import OxError, ServeError
from ox.serve.response_memory import Body, Buffers
from ox.serve.transport.http.response_stream import Http1ResponseStream, ResponseStream

if TYPE_CHECKING:
    from ox.serve.transport.http.connection import Connection

log = logging.getLogger("ox.serve")

JSON = b"application/json"
STATUS_LINES = {status.value: b"HTTP/1.1 %d %s\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
CONTINUE = STATUS_LINES[100] + b"\r\n"


class Exchange:
    """One request and its response."""

    __slots__ = (
        "body",
        "connection",
        "extra_headers",
        "headers",
        "keep_alive",
        "log_fields",
        "method",
        "on_cancel",
        "on_error",
        "received_at",
        "response",
        "target",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        method: bytes,
        target: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        keep_alive: bool,
    ) -> None:
        self.connection = connection
        self.method, self.target, self.headers = method, target, headers
        self.body = body  # a bytearray if it arrived in several reads; not modified
        self.keep_alive = keep_alive
        self.received_at = connection.listener_state.now()
        self.extra_headers = b""  # header lines of the response, each with its CRLF
        self.response: Body | Http1ResponseStream | None = None
        self.on_cancel: Callable[[], None] | None = None  # called if the client disconnects before the response
        self.on_error: Callable[[OxError | None], None] | None = None  # counts an error response; None: the client left
        self.log_fields: Mapping[str, Any] | None = None  # more for its line in the access log

    @property
    def peer(self) -> str:
        """The client's address; "" for a Unix domain socket."""
        connection = self.connection
        return connection.listener_state.client(connection.peer, self.headers)

    def reply(self, status: int, body: Body = b"", content_type: bytes = JSON, extra: bytes = b"") -> None:
        """Sends the response; `extra` holds header lines, each with its CRLF. Call it once, on the event loop."""
        listener_state = self.connection.listener_state
        listener_state.replies[status] += 1
        extra += self.extra_headers
        if listener_state.draining:
            self.keep_alive = False
        if not self.keep_alive:
            extra += b"connection: close\r\n"
        if listener_state.cors is not None:
            extra += listener_state.cors.headers(self.headers)
        if listener_state.access_log is not None:
            extra += listener_state.access_log.http(self, status, len(body))
        head = b"%scontent-type: %s\r\ncontent-length: %d\r\n%s\r\n" % (
            STATUS_LINES[status],
            content_type,
            len(body),
            extra,
        )
        if self.method == b"HEAD":
            self.response = head
        elif isinstance(body, Buffers):
            self.response = Buffers([head, *body.buffers])
        else:
            self.response = head + body
        self.on_cancel = None
        self.connection.process_queue()

    def stream_response(self, status: int, content_type: bytes, extra: bytes = b"") -> ResponseStream:
        """Begins a response that is sent in parts; in place of `reply`. `extra` holds header lines."""
        connection = self.connection
        chunked = self.chunks_allowed()
        extra += self.extra_headers
        if connection.listener_state.draining:
            self.keep_alive = False
        if not self.keep_alive:
            extra += b"connection: close\r\n"
        if chunked:
            extra += b"transfer-encoding: chunked\r\n"
        cors, access_log = connection.listener_state.cors, connection.listener_state.access_log
        if cors is not None:
            extra += cors.headers(self.headers)
        if access_log is not None:
            extra += access_log.id_header(self)
        head = b"%scontent-type: %s\r\n%s\r\n" % (STATUS_LINES[status], content_type, extra)
        stream = Http1ResponseStream(self, status, head, chunked)
        self.response = stream
        self.release_body()
        connection.process_queue()
        if stream.parts:  # an earlier response comes first
            stream.paused = True
        return stream

    def chunks_allowed(self) -> bool:
        """Whether the client understands chunks: HTTP/1.0 has none."""
        # A connection that does not stay open reads nothing after its last request, so the parser is still at it.
        return self.keep_alive or bool(self.connection.incoming.parser.get_http_version() == "1.1")

    def release_body(self) -> None:
        """Frees the memory of the request's body before the response is complete."""
        self.connection.listener_state.buffered -= len(self.body)
        self.body = b""

    def cancel_at_eof(self) -> None:
        """From now on a client that closes its sending side counts as gone, even if it could still read."""
        self.connection.cancel_at_eof = True

    def send_error(self, error: OxError, extra: bytes = b"") -> None:
        """Sends an error response in the format of the route."""
        if self.on_error is not None:
            self.on_error(error)
            self.on_error = None
        status = 500
        if isinstance(error, ServeError):
            status = error.status
            if status in (429, 503):
                extra += b"retry-after: %d\r\n" % max(1, ceil(error.retry_after))
            elif status == 401:
                extra += b'www-authenticate: Bearer realm="ox"\r\n'
        self.reply(status, self.connection.listener_state.error_body(self.target, error), extra=extra)

    def send_internal_error(self) -> None:
        """Logs the current exception, a bug in the server, and sends status 500."""
        access_log = self.connection.listener_state.access_log
        record_fields = {} if access_log is None else {"fields": access_log.of(self)}
        log.exception("%s %s failed", self.method.decode(), self.target.decode("latin-1"), extra=record_fields)
        self.send_error(ServeError("the server failed on this request", status=500, hint="its log"))


class KeepAliveExchange(Exchange):
    """A keep-alive request of HTTP/1.0: without a keep-alive header in the response the client waits for the close."""

    __slots__ = ()

    def chunks_allowed(self) -> bool:
        self.keep_alive = False  # only its end shows where the response ends
        return False

    def reply(self, status: int, body: Body = b"", content_type: bytes = JSON, extra: bytes = b"") -> None:
        if not self.connection.listener_state.draining:
            extra += b"connection: keep-alive\r\n"
        super().reply(status, body, content_type, extra)


class RejectedExchange(Exchange):
    """A request rejected by its headers. The server drops its body and sends the error in order."""

    __slots__ = ("error",)

    error: ServeError
