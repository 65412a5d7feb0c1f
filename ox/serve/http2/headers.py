"""Header blocks: HPACK to a validated head and back. A block that was seen before is not decoded again.

Answers use no dynamic table, so that a block is the same bytes whenever it is sent: literals without indexing, and
names from the static table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from hpack.hpack import encode_integer
from hpack.table import HeaderTable

from ox.errors import ServeError
from ox.serve.http2.fields import OVERHEAD, Decoder, Field
from ox.serve.http2.frames import END_HEADERS, END_STREAM, HEADERS, PROTOCOL_ERROR, StreamFault

if TYPE_CHECKING:
    from ox.serve.http2.connection import Connection
    from ox.serve.http2.stream import Stream

NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
VISIBLE = re.compile(rb"[!-~]+").fullmatch  # what a URL is made of
BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]|\A[ \t]|[ \t]\Z").search
HOP_BY_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
SINGLE = {b"host", b"content-length"}  # twice, and two readers may disagree about the request
PSEUDO = {b":method", b":scheme", b":path", b":authority"}
REMEMBERED, LONGEST = 64, 1024  # blocks of a connection that are kept, and bytes of one

Maker = Callable[["Connection", int, "Head", bool], "Stream"]


class Head:
    """What a request says before its body; shared by all requests that say the same, so nobody changes it."""

    __slots__ = ("error", "headers", "length", "make", "method", "target")

    make: Maker  # builds the stream that answers
    error: ServeError | None  # why it may not go ahead, whatever it is

    def __init__(self, method: bytes, target: bytes, headers: dict[bytes, bytes], length: int | None) -> None:
        self.method, self.target, self.headers, self.length = method, target, headers, length
        self.error = None


class Blocks:
    """The header blocks that one client sends."""

    def __init__(self, most_bytes: int, most_count: int) -> None:
        self._most_bytes, self._most_count = most_bytes, most_count
        # What is somewhat too large is decoded and refused, and the connection goes on.
        self._decoder = Decoder(2 * most_bytes, 2 * most_count)
        self.known: dict[bytes, Head] = {}  # blocks that mean the same as long as the table does not change

    def fields(self, block: bytes) -> list[Field]:
        """Raises ConnectionFault where the table can no longer be trusted."""
        fields = self._decoder.decode(block)
        if self._decoder.changed:
            self.known.clear()
        return fields

    def head(self, block: bytes) -> Head:
        """The head of a request, checked.

        Raises:
            ConnectionFault: see `fields`.
            StreamFault: it is malformed.
        """
        fields = self.fields(block)
        head = read_head(fields)
        size = sum(len(name) + len(value) + OVERHEAD for name, value in fields)
        if len(fields) > self._most_count or size > self._most_bytes:
            most = (
                f"at most {self._most_bytes} bytes in {self._most_count} headers (--limit header_bytes, header_count)"
            )
            head.error = ServeError("the headers are too large", status=431, expected=most)
        elif not self._decoder.changed and len(block) <= LONGEST:
            if len(self.known) >= REMEMBERED:
                self.known.clear()
            self.known[block] = head
        return head


def read_head(fields: Iterable[Field]) -> Head:
    """A request's head from its fields.

    Raises:
        StreamFault: RFC 9113 calls it malformed.
    """
    pseudo: dict[bytes, bytes] = {}
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        if name[:1] == b":":
            good = METHOD if name == b":method" else VISIBLE
            if headers or name in pseudo or name not in PSEUDO or not good(value):
                raise StreamFault(PROTOCOL_ERROR)
            pseudo[name] = value
        elif (
            not NAME(name) or BAD_VALUE(value) or name in HOP_BY_HOP or (name == b"te" and value.lower() != b"trailers")
        ):
            raise StreamFault(PROTOCOL_ERROR)
        elif name not in headers:
            headers[name] = value
        elif name in SINGLE:
            raise StreamFault(PROTOCOL_ERROR)
        else:
            headers[name] += (b"; " if name == b"cookie" else b", ") + value
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    authority = pseudo.get(b":authority")
    if method == b"CONNECT":
        if not authority or b":scheme" in pseudo or b":path" in pseudo:
            raise StreamFault(PROTOCOL_ERROR)
        target = authority
    elif not pseudo.get(b":scheme") or not method or not (target[:1] == b"/" or (target, method) == (b"*", b"OPTIONS")):
        raise StreamFault(PROTOCOL_ERROR)
    if authority is not None and headers.setdefault(b"host", authority) != authority:
        raise StreamFault(PROTOCOL_ERROR)
    length = headers.get(b"content-length")
    if length is not None and not (length.isdigit() and len(length) < 19):
        raise StreamFault(PROTOCOL_ERROR)
    return Head(method, target, headers, None if length is None else int(length))


def check_trailers(fields: Iterable[Field]) -> None:
    """Raises StreamFault for what may not stand after a body."""
    for name, value in fields:
        if not _allowed(name, value):
            raise StreamFault(PROTOCOL_ERROR)


def _allowed(name: bytes, value: bytes) -> bool:
    return NAME(name) is not None and name not in HOP_BY_HOP and BAD_VALUE(value) is None


class Block:
    """An encoded header list, ready to be framed: `start`, four bytes of stream number, `block`."""

    __slots__ = ("block", "last", "start")

    def __init__(self, fields: Iterable[Field], last: bool = False) -> None:
        self.last = last  # nothing comes after it
        self._frame(b"".join(literal(name, value) for name, value in fields))

    def _frame(self, block: bytes) -> None:
        self.block = block
        flags = END_HEADERS | (END_STREAM if self.last else 0)
        self.start = len(block).to_bytes(3, "big") + bytes((HEADERS, flags))

    def after(self, update: bytes) -> Block:
        """The same with an update of the table before it."""
        other = object.__new__(Block)
        other.last = self.last
        other._frame(update + self.block)
        return other


def literal(name: bytes, value: bytes) -> bytes:
    """One field without indexing; a status that the static table has is one byte."""
    index, values = HeaderTable.STATIC_TABLE_MAPPING.get(name, (0, {}))
    if value in values and name == b":status":
        return bytes((0x80 | values[value],))
    label = bytes(encode_integer(index, 4)) if index else b"\0" + _text(name)
    return label + _text(value)


def _text(text: bytes) -> bytes:
    return bytes(encode_integer(len(text), 7)) + text
