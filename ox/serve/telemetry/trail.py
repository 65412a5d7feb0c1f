"""What the log says of requests: an id for each, and a line for each where an access log is wanted."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ox.serve.telemetry.logs import LOGGER

if TYPE_CHECKING:
    from ox.serve.http import Exchange

ID = b"x-request-id"
TAKEN = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}").fullmatch
PARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?").fullmatch  # W3C's traceparent
NO_TRACE = b"0" * 32


class Trail:
    """Gives requests their ids. `access` asks for a line each as well."""

    def __init__(self, access: bool) -> None:
        self.access = access
        self._prefix = secrets.token_hex(6).encode()  # workers do not know of each other
        self._numbers = itertools.count(1)

    def identify(self, headers: Mapping[bytes, bytes]) -> bytes:
        """The client's own id where it is a decent one, else a new one."""
        given = headers.get(ID)
        if given is not None and TAKEN(given):
            return given
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
        ident = self.known(exchange)
        if self.access:
            self._line(
                exchange.headers,
                ident,
                method=exchange.method.decode("latin-1"),
                target=exchange.target.decode("latin-1"),
                status=status,
                bytes=size,
                ms=_ms(exchange.arrived),
                peer=exchange.connection.peer,
            )
        return b"x-request-id: %s\r\n" % ident

    def rpc(self, path: bytes, metadata: Mapping[bytes, bytes], code: int, arrived: float, peer: str) -> None:
        """Notes the end of a call over gRPC."""
        if self.access:
            ident = self.identify(metadata)
            self._line(
                metadata, ident, method="gRPC", target=path.decode("latin-1"), code=code, ms=_ms(arrived), peer=peer
            )

    def of(self, exchange: Exchange) -> dict[str, Any]:
        """What else is logged of an exchange belongs to it."""
        return self.fields(exchange.headers, self.known(exchange))

    def known(self, exchange: Exchange) -> bytes:
        """An exchange's id, the same however often it is asked for: it is kept among the headers."""
        ident = exchange.headers.get(ID)
        if ident is None or not TAKEN(ident):
            ident = self.identify(exchange.headers)
            exchange.headers = {**exchange.headers, ID: ident}  # the others may be those of other requests, too
        return ident

    def _line(self, headers: Mapping[bytes, bytes], ident: bytes, **what: Any) -> None:
        LOGGER.info("request", extra={"fields": {**what, **self.fields(headers, ident)}})


def _ms(arrived: float) -> float:
    return round(1000 * (perf_counter() - arrived), 3)
