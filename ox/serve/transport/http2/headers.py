"""Header blocks: decodes HPACK to a validated head, with a cache, and encodes response headers.

Responses use no dynamic table, so that a block always has the same bytes: literals without indexing, with names from
the static table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from hpack.hpack import encode_integer
from hpack.table import HeaderTable

from ox.errors import ServeError
from ox.serve.transport.http2.frames import END_HEADERS, END_STREAM, HEADERS, PROTOCOL_ERROR, Http2StreamError
from ox.serve.transport.http2.hpack_decoder import FIELD_OVERHEAD, Field, HpackDecoder

if TYPE_CHECKING:
    from ox.serve.transport.http2.connection import Connection
    from ox.serve.transport.http2.stream import Stream

NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
VISIBLE = re.compile(rb"[!-~]+").fullmatch  # characters of a URL
BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]|\A[ \t]|[ \t]\Z").search
HOP_BY_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
SINGLETON_HEADERS = {b"host", b"content-length"}  # duplicates allow request smuggling
PSEUDO_HEADERS = {b":method", b":scheme", b":path", b":authority"}
MAX_CACHED_BLOCKS, MAX_CACHED_BYTES = 64, 1024  # cached blocks per connection, and bytes of one

StreamFactory = Callable[["Connection", int, "Head", bool], "Stream"]


class Head:
    """The head of a request. Requests with equal heads share one object: do not modify it."""

    __slots__ = ("create_stream", "error", "headers", "length", "method", "target")

    create_stream: StreamFactory  # creates the stream that handles the request
    error: ServeError | None  # the reason to reject such requests

    def __init__(self, method: bytes, target: bytes, headers: dict[bytes, bytes], length: int | None) -> None:
        self.method, self.target, self.headers, self.length = method, target, headers, length
        self.error = None


class HeaderBlockDecoder:
    """Decodes and caches the header blocks of one client."""

    def __init__(self, max_bytes: int, max_count: int) -> None:
        self._max_bytes, self._max_count = max_bytes, max_count
        # Headers up to twice the limit are decoded and get an error response; the connection stays open.
        self._decoder = HpackDecoder(2 * max_bytes, 2 * max_count)
        self.cache: dict[bytes, Head] = {}  # by bytes, valid while the dynamic table does not change

    def decode(self, block: bytes) -> list[Field]:
        """Raises Http2ConnectionError for invalid HPACK."""
        fields = self._decoder.decode(block)
        if self._decoder.table_changed:
            self.cache.clear()
        return fields

    def decode_head(self, block: bytes) -> Head:
        """The head of a request, checked.

        Raises:
            Http2ConnectionError: see `decode`.
            Http2StreamError: the request is malformed.
        """
        fields = self.decode(block)
        head = read_head(fields)
        size = sum(len(name) + len(value) + FIELD_OVERHEAD for name, value in fields)
        if len(fields) > self._max_count or size > self._max_bytes:
            most = f"at most {self._max_bytes} bytes in {self._max_count} headers (--limit header_bytes, header_count)"
            head.error = ServeError("the headers are too large", status=431, expected=most)
        elif not self._decoder.table_changed and len(block) <= MAX_CACHED_BYTES:
            if len(self.cache) >= MAX_CACHED_BLOCKS:
                self.cache.clear()
            self.cache[block] = head
        return head


def read_head(fields: Iterable[Field]) -> Head:
    """A request's head from its fields.

    Raises:
        Http2StreamError: the request is malformed (RFC 9113 8.1.1).
    """
    pseudo: dict[bytes, bytes] = {}
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        if name[:1] == b":":
            good = METHOD if name == b":method" else VISIBLE
            if headers or name in pseudo or name not in PSEUDO_HEADERS or not good(value):
                raise Http2StreamError(PROTOCOL_ERROR)
            pseudo[name] = value
        elif (
            not NAME(name) or BAD_VALUE(value) or name in HOP_BY_HOP or (name == b"te" and value.lower() != b"trailers")
        ):
            raise Http2StreamError(PROTOCOL_ERROR)
        elif name not in headers:
            headers[name] = value
        elif name in SINGLETON_HEADERS:
            raise Http2StreamError(PROTOCOL_ERROR)
        else:
            headers[name] += (b"; " if name == b"cookie" else b", ") + value
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    authority = pseudo.get(b":authority")
    if method == b"CONNECT":
        if not authority or b":scheme" in pseudo or b":path" in pseudo:
            raise Http2StreamError(PROTOCOL_ERROR)
        target = authority
    elif not pseudo.get(b":scheme") or not method or not (target[:1] == b"/" or (target, method) == (b"*", b"OPTIONS")):
        raise Http2StreamError(PROTOCOL_ERROR)
    if authority is not None and headers.setdefault(b"host", authority) != authority:
        raise Http2StreamError(PROTOCOL_ERROR)
    length = headers.get(b"content-length")
    if length is not None and not (length.isdigit() and len(length) < 19):
        raise Http2StreamError(PROTOCOL_ERROR)
    return Head(method, target, headers, None if length is None else int(length))


def check_trailers(fields: Iterable[Field]) -> None:
    """Raises Http2StreamError for fields that are not allowed in trailers."""
    for name, value in fields:
        if not _is_valid_trailer(name, value):
            raise Http2StreamError(PROTOCOL_ERROR)


def _is_valid_trailer(name: bytes, value: bytes) -> bool:
    return NAME(name) is not None and name not in HOP_BY_HOP and BAD_VALUE(value) is None


class HeaderBlock:
    """An encoded header list. Its frame is `start`, four bytes of stream id, `block`."""

    __slots__ = ("block", "end_stream", "start")

    def __init__(self, fields: Iterable[Field], end_stream: bool = False) -> None:
        self.end_stream = end_stream  # the END_STREAM flag
        self._encode_frame(b"".join(encode_field(name, value) for name, value in fields))

    def _encode_frame(self, block: bytes) -> None:
        self.block = block
        flags = END_HEADERS | (END_STREAM if self.end_stream else 0)
        self.start = len(block).to_bytes(3, "big") + bytes((HEADERS, flags))

    def with_table_update(self, update: bytes) -> HeaderBlock:
        """The same block after a dynamic table size update."""
        other = object.__new__(HeaderBlock)
        other.end_stream = self.end_stream
        other._encode_frame(update + self.block)
        return other


def encode_field(name: bytes, value: bytes) -> bytes:
    """Encodes a field without indexing; a status in the static table takes one byte."""
    index, values = HeaderTable.STATIC_TABLE_MAPPING.get(name, (0, {}))
    if value in values and name == b":status":
        return bytes((0x80 | values[value],))
    encoded_name = bytes(encode_integer(index, 4)) if index else b"\0" + _encode_string(name)
    return encoded_name + _encode_string(value)


def _encode_string(text: bytes) -> bytes:
    return bytes(encode_integer(len(text), 7)) + text
