"""An HTTP request over HTTP/2. The handler gets the same `Exchange` as over HTTP/1.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ox.errors import OxError, ServeError
from ox.serve.response_memory import Body
from ox.serve.transport.http.exchange import JSON, Exchange
from ox.serve.transport.http.response_stream import HIGH_WATER, ResponseStream
from ox.serve.transport.http2.frames import NO_ERROR
from ox.serve.transport.http2.headers import Head, HeaderBlock
from ox.serve.transport.http2.hpack_decoder import Field
from ox.serve.transport.http2.stream import Stream

if TYPE_CHECKING:
    from ox.serve.transport.http2.connection import Connection


CONTINUE = HeaderBlock([(b":status", b"100")])


class HttpStream(Stream):
    """Collects the body of a request, then calls the listener's handler."""

    response_sent = False
    response_stream: Http2ResponseStream | None = None  # a response that is sent in parts

    def __init__(self, connection: Connection, stream_id: int, head: Head, ended: bool) -> None:
        super().__init__(connection, stream_id, head, ended)
        self.body: bytes | bytearray = b""
        self.exchange = Http2Exchange(self)
        try:
            self._admit()
        except OxError as error:
            self.exchange.send_error(error)

    def _admit(self) -> None:
        listener_state, head = self.connection.listener_state, self.head
        if head.error is not None:
            raise head.error
        if len(head.target) > listener_state.limits.url:
            raise ServeError(
                "the URL is too long", status=414, expected=f"at most {listener_state.limits.url} bytes (--limit url)"
            )
        if (head.length or 0) > listener_state.limits.body:
            raise self._too_large()
        expected = head.headers.get(b"expect", b"100-continue").lower()
        if expected != b"100-continue":
            raise ServeError("unknown expectation", status=417, expected="100-continue")
        if listener_state.admit is not None:
            listener_state.admit(head.method, head.target, head.headers, self.peer)
        if b"expect" in head.headers and not self.remote_closed:
            self.send_headers(CONTINUE)

    def _too_large(self) -> ServeError:
        most = self.connection.limits.body
        return ServeError("the body is too large", status=413, expected=f"at most {most} bytes (--limit body)")

    def receive_data(self, data: bytes, begin: int, end: int, ended: bool) -> None:
        if self.response_sent:  # from its headers alone
            return
        listener_state = self.connection.listener_state
        try:
            self._append_body(data, begin, end)
        except ServeError as error:
            self.release_body()
            self.exchange.send_error(error)
            return
        if not ended:
            return
        exchange = self.exchange
        exchange.received_at = listener_state.now()
        exchange.body = self.body  # type: ignore[assignment]  # not modified
        try:
            listener_state.handle(exchange)
        except OxError as error:
            exchange.send_error(error)
        except Exception:
            exchange.send_internal_error()

    def _append_body(self, data: bytes, begin: int, end: int) -> None:
        listener_state = self.connection.listener_state
        listener_state.buffered += end - begin
        if len(self.body) + end - begin > listener_state.limits.body:
            listener_state.buffered -= end - begin
            raise self._too_large()
        if not self.body:
            self.body = data[begin:end]
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += data[begin:end]
        if listener_state.buffered > listener_state.limits.buffered:
            what = "the server's request buffers are full (--limit buffered)"
            raise ServeError(what, status=503, hint="again in a moment")

    def release_body(self) -> None:
        self.connection.listener_state.buffered -= len(self.body)
        self.body = b""

    def close_local(self) -> None:
        self.release_body()
        super().close_local()

    def on_receive_timeout(self) -> None:
        if self.response_sent:
            self.reset(NO_ERROR)  # the client does not read the response either
            return
        got = f"{len(self.body)} bytes of a body in {self.connection.limits.request_s:g} s"
        self.release_body()
        what = "the request was not received in time (--limit request_s)"
        self.exchange.send_error(ServeError(what, status=408, got=got))

    def on_drain(self) -> None:
        if self.response_stream is not None and self.queued <= HIGH_WATER // 4:
            self.response_stream.set_paused(False)

    def cancel(self) -> None:
        self.release_body()
        if self.exchange.on_cancel is not None:
            self.exchange.on_cancel()


class Http2Exchange(Exchange):
    """One request over HTTP/2 and its response."""

    __slots__ = ("stream",)

    def __init__(self, stream: HttpStream) -> None:
        head = stream.head
        super().__init__(stream.connection, head.method, head.target, head.headers, b"", True)  # type: ignore[arg-type]
        self.stream = stream

    def reply(self, status: int, body: Body = b"", content_type: bytes = JSON, extra: bytes = b"") -> None:
        """Sends the response, see `Exchange.reply`."""
        self.stream.response_sent = True
        listener_state = self.stream.connection.listener_state
        listener_state.replies[status] += 1
        if listener_state.cors is not None:
            extra += listener_state.cors.headers(self.headers)
        extra += self.extra_headers
        if listener_state.access_log is not None:
            extra += listener_state.access_log.http(self, status, len(body))
        fields = _fields(status, content_type, extra)
        fields.insert(2, (b"content-length", b"%d" % len(body)))
        self.on_cancel = None
        headers_only = self.method == b"HEAD" or not body
        head = HeaderBlock(fields, end_stream=headers_only)
        if headers_only:
            self.stream.send_headers(head)
        else:
            self.stream.respond(head, body)

    def stream_response(self, status: int, content_type: bytes, extra: bytes = b"") -> ResponseStream:
        """Begins a response in parts, see `Exchange.stream_response`."""
        self.stream.response_sent = True
        listener_state = self.stream.connection.listener_state
        cors, access_log = listener_state.cors, listener_state.access_log
        if cors is not None:
            extra += cors.headers(self.headers)
        extra += self.extra_headers
        if access_log is not None:
            extra += access_log.id_header(self)
        self.release_body()
        self.stream.send_headers(HeaderBlock(_fields(status, content_type, extra)))
        self.stream.response_stream = stream = Http2ResponseStream(self, status)
        return stream

    def release_body(self) -> None:
        self.stream.release_body()
        self.body = b""

    def cancel_at_eof(self) -> None:
        """HTTP/2 has no half-closed connections."""


class Http2ResponseStream(ResponseStream):
    """Over HTTP/2: DATA frames, as the client's windows allow."""

    __slots__ = ("_stream",)

    def __init__(self, exchange: Http2Exchange, status: int) -> None:
        super().__init__(exchange, status)
        self._stream = exchange.stream

    def write(self, data: bytes) -> None:
        self.bytes_written += len(data)
        self._stream.send_data(data)
        if self._stream.queued > HIGH_WATER:
            self.set_paused(True)

    def end(self) -> None:
        self._finish()
        self._stream.end_stream()


def _fields(status: int, content_type: bytes, extra: bytes) -> list[Field]:
    """The fields of a response's head; `extra` holds header lines of HTTP/1.1."""
    fields = [(b":status", b"%d" % status), (b"content-type", content_type)]
    for line in extra.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        fields.append((name.strip().lower(), value.strip()))
    return fields
