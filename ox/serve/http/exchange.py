"""One HTTP request and the answer to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING

import orjson

from ox.errors import OxError, ServeError
from ox.serve.answer_memory import Body, Parts

if TYPE_CHECKING:
    from ox.serve.http.connection import Connection

log = logging.getLogger("ox.serve")

JSON = b"application/json"
START = {status.value: b"HTTP/1.1 %d %s\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
CONTINUE = START[100] + b"\r\n"


class Exchange:
    """One request and the answer to it."""

    __slots__ = (
        "arrived", "body", "connection", "headers", "keep_alive", "method", "on_abandon", "response", "target",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, method: bytes, target: bytes, headers: dict[bytes, bytes], body: bytes, keep: bool
    ) -> None:
        self.connection = connection
        self.method, self.target, self.headers = method, target, headers
        self.body = body  # a bytearray, where it came in pieces: nobody writes to it
        self.keep_alive = keep
        self.arrived = perf_counter()
        self.response: Body | None = None
        self.on_abandon: Callable[[], None] | None = None  # called if the client goes away before the answer

    def reply(self, status: int, body: Body = b"", content_type: bytes = JSON, extra: bytes = b"") -> None:
        """Answers; `extra` holds whole header lines, each ended by CRLF. Called once, on the event loop's thread."""
        front = self.connection.front
        front.replies[status] += 1
        if front.draining:
            self.keep_alive = False
        if not self.keep_alive:
            extra += b"connection: close\r\n"
        if front.trail is not None:
            extra += front.trail.http(self, status, len(body))
        head = b"%scontent-type: %s\r\ncontent-length: %d\r\n%s\r\n" % (START[status], content_type, len(body), extra)
        if self.method == b"HEAD":
            self.response = head
        elif isinstance(body, Parts):
            self.response = Parts([head, *body.parts])
        else:
            self.response = head + body
        self.on_abandon = None
        self.connection.advance()

    def refuse(self, error: OxError, extra: bytes = b"") -> None:
        """Answers with an error in the protocol's form."""
        status = 500
        if isinstance(error, ServeError):
            status = error.status
            if status in (429, 503):
                extra += b"retry-after: %d\r\n" % max(1, ceil(error.retry_after))
            elif status == 401:
                extra += b'www-authenticate: Bearer realm="ox"\r\n'
        self.reply(status, orjson.dumps({"error": error.one_line()}), extra=extra)

    def fail(self) -> None:
        """Answers for an exception that is a defect of ours, and logs it."""
        trail = self.connection.front.trail
        known = {} if trail is None else {"fields": trail.of(self)}
        log.exception("%s %s failed", self.method.decode(), self.target.decode("latin-1"), extra=known)
        self.refuse(ServeError("the server failed on this request", status=500, hint="its log"))


class KeepAlive(Exchange):
    """A request of HTTP/1.0 whose client asked to stay connected: it waits for the end unless it is told so."""

    __slots__ = ()

    def reply(self, status: int, body: Body = b"", content_type: bytes = JSON, extra: bytes = b"") -> None:
        if not self.connection.front.draining:
            extra += b"connection: keep-alive\r\n"
        super().reply(status, body, content_type, extra)


class Refused(Exchange):
    """A request that was refused by its head. Its body is read away, and its answer waits for its turn."""

    __slots__ = ("error",)

    error: ServeError
