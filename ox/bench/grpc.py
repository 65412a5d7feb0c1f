"""gRPC's unary calls over one HTTP/2 connection: for load, and for a single question."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from ox.bench.address import Address
from ox.bench.answer import OK, Reply
from ox.bench.client import Client
from ox.bench.http2 import LAST_STREAM, Headers, Http2Connection, pieces_of
from ox.bench.request import INFER

if TYPE_CHECKING:
    from ox.bench.pool import Pool

NAMES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)


class GrpcClient(Http2Connection, Client):
    """Asks for inferences, one after the other."""

    def __init__(self, pool: Pool) -> None:
        Client.__init__(self, pool)
        Http2Connection.__init__(self, pool.address, INFER)
        self.wholes = pool.wholes
        self.latest = 0  # the stream of the latest right answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.open()

    def data_received(self, data: bytes) -> None:
        """The same answer comes as the same bytes, but for the stream's number: once read, it is recognised."""
        if self.buffer or not self.calling or self.unsent or self.stream >= LAST_STREAM or self.spent:
            super().data_received(data)
            return
        place, stream = self.place, self.stream
        # a connection's first headers change the state of its decoder, so they are never skipped
        pieces = self.wholes.get(place) if self.blocks else None
        if pieces is not None and data == stream.to_bytes(4, "big").join(pieces):
            self.calling = False
            self.taken(len(data))
            self.right()
            return
        super().data_received(data)
        if self.latest == stream:
            found = pieces_of(data, stream)
            if found is not None:
                self.wholes[place] = found

    def ended(self, headers: Headers, trailers: Headers, message: bytearray) -> None:
        if self.spent:
            self.lost = True
            self.transport.abort()
        prompt = trailers.get(b"grpc-status") == b"0" and message[:1] == b"\0"
        if prompt and message[5:] == self.known[self.place]:
            self.latest = self.stream
            self.right()
        else:
            self.answered(as_reply(headers, trailers, bytes(message)))
        if self.spent:
            self.pool.lost(self)

    def reset(self, code: int) -> None:
        self.answered(Reply(OK, b"", failure=f"HTTP/2 reset, code {code}"))

    def broken(self, kind: str, example: str) -> None:
        self.fail(kind, example)


class GrpcCall(Http2Connection, asyncio.Protocol):
    """One call on its own connection; `outcome` gets the result."""

    def __init__(self, address: Address, path: str, outcome: asyncio.Future[Reply]) -> None:
        super().__init__(address, path)
        self.outcome = outcome

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.open()

    def connection_lost(self, exc: Exception | None) -> None:
        self.broken("closed", str(exc or "the server closed the connection"))

    def ended(self, headers: Headers, trailers: Headers, message: bytearray) -> None:
        self._settle(as_reply(headers, trailers, bytes(message)))

    def reset(self, code: int) -> None:
        self._settle(Reply(OK, b"", failure=f"HTTP/2 reset, code {code}"))

    def broken(self, kind: str, example: str) -> None:
        self._settle(Reply(OK, example.encode(), failure=kind))

    def _settle(self, reply: Reply) -> None:
        if not self.outcome.done():
            self.outcome.set_result(reply)


def as_reply(headers: Headers, trailers: Headers, data: bytes) -> Reply:
    status = trailers.get(b"grpc-status")
    http = headers.get(b":status", trailers.get(b":status", b"200"))
    if http != b"200":
        return Reply(OK, b"", failure=f"HTTP {http.decode('latin-1')}")
    if status is None or not status.isdigit():
        return Reply(OK, b"", failure="wrong: no grpc-status")
    if status != b"0":
        code = int(status)
        name = NAMES[code] if code < len(NAMES) else "?"
        message = unquote(trailers.get(b"grpc-message", b"").decode("latin-1"))
        return Reply(OK, message.encode(), failure=f"gRPC {code} {name}")
    if len(data) < 5 or data[0] != 0 or int.from_bytes(data[1:5], "big") != len(data) - 5:
        return Reply(OK, b"", failure="wrong: not one whole message")
    return Reply(OK, data[5:])
