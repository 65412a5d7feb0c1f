"""Request ids, and the access log."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ox.clock import Clock
from ox.serve.telemetry.logs import LOGGER

if TYPE_CHECKING:
    from ox.serve.transport.http import Exchange

ID = b"x-request-id"
VALID_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}").fullmatch
PARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?").fullmatch  # W3C's traceparent
NO_TRACE = b"0" * 32


class AccessLog:
    """Gives requests their ids. `access`: writes a line for each."""

    def __init__(self, access: bool, clock: Clock) -> None:
        self.access, self._now = access, clock.now
        self._prefix = secrets.token_hex(6).encode()  # workers do not know of each other
        self._numbers = itertools.count(1)

    def identify(self, headers: Mapping[bytes, bytes]) -> bytes:
        """The client's own id where it is a decent one, else a new one."""
        client_id = headers.get(ID)
        if client_id is not None and VALID_ID(client_id):
            return client_id
        return b"%s-%x" % (self._prefix, next(self._numbers))

    def fields(self, headers: Mapping[bytes, bytes], ident: bytes) -> dict[str, Any]:
        """What ties a line to its request: the id, and the trace that the client made it a part of."""
        entry = {"request_id": ident.decode()}
        parent = PARENT(headers.get(b"traceparent", b""))
        if parent is not None and parent[1] != NO_TRACE:
            entry["trace_id"] = parent[1].decode()
        return entry

    def http(self, exchange: Exchange, status: int, size: int) -> bytes:
        """Notes an answer over HTTP, and gives the header line with its id."""
        header = self.id_header(exchange)
        self.line(exchange, status, size)
        return header

    def id_header(self, exchange: Exchange) -> bytes:
        """The header line with an exchange's id."""
        return b"x-request-id: %s\r\n" % self.request_id(exchange)

    def line(self, exchange: Exchange, status: int, size: int) -> None:
        """Notes an answer over HTTP; a streamed one when it has ended."""
        if self.access:
            self._line(
                exchange.headers,
                self.request_id(exchange),
                method=exchange.method.decode("latin-1"),
                target=exchange.target.decode("latin-1"),
                status=status,
                bytes=size,
                ms=self._ms(exchange.received_at),
                peer=exchange.peer,
                **(exchange.log_fields or {}),
            )

    def rpc(self, path: bytes, metadata: Mapping[bytes, bytes], code: int, arrived: float, peer: str) -> None:
        """Notes the end of a call over gRPC."""
        if self.access:
            ident, ms = self.identify(metadata), self._ms(arrived)
            self._line(metadata, ident, method="gRPC", target=path.decode("latin-1"), code=code, ms=ms, peer=peer)

    def of(self, exchange: Exchange) -> dict[str, Any]:
        """What else is logged of an exchange belongs to it."""
        return self.fields(exchange.headers, self.request_id(exchange))

    def request_id(self, exchange: Exchange) -> bytes:
        """An exchange's id, which is stored in its headers."""
        ident = exchange.headers.get(ID)
        if ident is None or not VALID_ID(ident):
            ident = self.identify(exchange.headers)
            exchange.headers = {**exchange.headers, ID: ident}  # the others may be those of other requests, too
        return ident

    def _line(self, headers: Mapping[bytes, bytes], ident: bytes, **what: Any) -> None:
        LOGGER.info("request", extra={"fields": {**what, **self.fields(headers, ident)}})

    def _ms(self, arrived: float) -> float:
        return round(1000 * (self._now() - arrived), 3)
