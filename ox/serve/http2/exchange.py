"""A plain HTTP request over HTTP/2: to whoever handles it, the same exchange as over HTTP/1.1."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from ox.errors import OxError, ServeError
from ox.serve.answer_memory import Body
from ox.serve.http.exchange import JSON, Exchange
from ox.serve.http2.frames import NO_ERROR
from ox.serve.http2.headers import Block, Head
from ox.serve.http2.stream import Stream

if TYPE_CHECKING:
    from ox.serve.http2.connection import Connection


CONTINUE = Block([(b":status", b"100")])


class Plain(Stream):
    """Collects a request's body, then asks the front's handler."""

    answered = False

    def __init__(self, connection: Connection, ident: int, head: Head, ended: bool) -> None:
        super().__init__(connection, ident, head, ended)
        self.body: bytes | bytearray = b""
        self.exchange = Exchange2(self)
        try:
            self._admit()
        except OxError as error:
            self.exchange.refuse(error)

    def _admit(self) -> None:
        front, head = self.connection.front, self.head
        if head.error is not None:
            raise head.error
        if len(head.target) > front.limits.url:
            raise ServeError(
                "the URL is too long", status=414, expected=f"at most {front.limits.url} bytes (--limit url)"
            )
        if (head.length or 0) > front.limits.body:
            raise self._too_large()
        expected = head.headers.get(b"expect", b"100-continue").lower()
        if expected != b"100-continue":
            raise ServeError("unknown expectation", status=417, expected="100-continue")
        if front.admit is not None:
            front.admit(head.method, head.target, head.headers, self.connection.peer)
        if b"expect" in head.headers and not self.remote_ended:
            self.begin(CONTINUE)

    def _too_large(self) -> ServeError:
        most = self.connection.limits.body
        return ServeError("the body is too large", status=413, expected=f"at most {most} bytes (--limit body)")

    def received(self, data: bytes, begin: int, end: int, ended: bool) -> None:
        if self.answered:  # by its head
            return
        front = self.connection.front
        try:
            self._keep(data, begin, end)
        except ServeError as error:
            self._drop()
            self.exchange.refuse(error)
            return
        if not ended:
            return
        exchange = self.exchange
        exchange.arrived = perf_counter()
        exchange.body = self.body  # type: ignore[assignment]  # nobody writes to it
        try:
            front.handle(exchange)
        except OxError as error:
            exchange.refuse(error)
        except Exception:
            exchange.fail()

    def _keep(self, data: bytes, begin: int, end: int) -> None:
        front = self.connection.front
        front.buffered += end - begin
        if len(self.body) + end - begin > front.limits.body:
            front.buffered -= end - begin
            raise self._too_large()
        if not self.body:
            self.body = data[begin:end]
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += data[begin:end]
        if front.buffered > front.limits.buffered:
            what = "the server holds as many request bodies as it may (--limit buffered)"
            raise ServeError(what, status=503, hint="again in a moment")

    def _drop(self) -> None:
        self.connection.front.buffered -= len(self.body)
        self.body = b""

    def closed(self) -> None:
        self._drop()
        super().closed()

    def late(self) -> None:
        if self.answered:
            self.reset(NO_ERROR)  # nor does the client take the answer
            return
        got = f"{len(self.body)} bytes of a body in {self.connection.limits.request_s:g} s"
        self._drop()
        what = "the request did not arrive whole in time (--limit request_s)"
        self.exchange.refuse(ServeError(what, status=408, got=got))

    def abandoned(self) -> None:
        self._drop()
        if self.exchange.on_abandon is not None:
            self.exchange.on_abandon()


class Exchange2(Exchange):
    """One request over HTTP/2 and the answer to it."""

    __slots__ = ("stream",)

    def __init__(self, stream: Plain) -> None:
        head = stream.head
        super().__init__(stream.connection, head.method, head.target, head.headers, b"", True)  # type: ignore[arg-type]
        self.stream = stream

    def reply(self, status: int, body: Body = b"", content_type: bytes = JSON, extra: bytes = b"") -> None:
        """Answers; `extra` holds whole header lines, each ended by CRLF. Called once, on the event loop's thread."""
        self.stream.answered = True
        front = self.stream.connection.front
        front.replies[status] += 1
        if front.trail is not None:
            extra += front.trail.http(self, status, len(body))
        fields = [(b":status", b"%d" % status), (b"content-type", content_type), (b"content-length", b"%d" % len(body))]
        for line in extra.split(b"\r\n")[:-1]:
            name, _, value = line.partition(b":")
            fields.append((name.strip().lower(), value.strip()))
        self.on_abandon = None
        bare = self.method == b"HEAD" or not body
        head = Block(fields, last=bare)
        if bare:
            self.stream.begin(head)
        else:
            self.stream.respond(head, body)
