"""An HTTP/2 client for one unary call at a time.

The header table is declared empty, so a block of headers means the same whenever it comes, and each is decoded once.
"""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping

import hpack

from ox.bench.address import Address

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW, MAX_FRAME = 1, 2, 4, 5
LARGEST_WINDOW = (1 << 31) - 1
DEFAULT_WINDOW = 65_535
LARGEST_BLOCK = 65_536
LAST_STREAM = 1 << 30  # then a new connection, long before the numbers run out
MAX_CACHED_BLOCKS = 256


Headers = Mapping[bytes, bytes]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


CONNECTION_PREFACE = (
    PREFACE
    + frame(SETTINGS, 0, 0, struct.pack(">HIHIHI", TABLE_SIZE, 0, ENABLE_PUSH, 0, INITIAL_WINDOW, LARGEST_WINDOW))
    + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", LARGEST_WINDOW - DEFAULT_WINDOW))
)


def block(address: Address, path: str) -> bytes:
    """The request's headers, without indexing in the server's table."""
    pairs = [
        (":method", "POST"),
        (":scheme", "https" if address.tls else "http"),
        (":path", path),
        (":authority", address.authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "ox-bench"),
    ]
    if address.key is not None:
        pairs.append(("authorization", f"Bearer {address.key}"))
    out = bytearray()
    for name, value in pairs:
        out.append(0)  # a literal that is not indexed
        for text in (name, value):
            size = len(text)
            out += bytes((size,)) if size < 127 else b"\x7f" + _rest(size - 127)
            out += text.encode("ascii")
    return bytes(out)


def _rest(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


class Http2Connection(ABC):
    """A connection with one call in flight. Subclasses handle its outcome."""

    transport: asyncio.Transport

    def __init__(self, address: Address, path: str) -> None:
        self.block = block(address, path)
        self.frames: dict[bytes, tuple[bytes, bytes, bytes]] = {}  # of requests that fit into one frame
        self.calling = False  # a call is out
        self.spent = False  # after it, another connection
        self.decoder = hpack.Decoder()
        self.decoder.max_allowed_table_size = 0
        self.blocks: dict[bytes, dict[bytes, bytes]] = {}
        self.buffer = b""
        self.stream = -1
        self.window = self.initial = DEFAULT_WINDOW  # of the connection; of each stream
        self.stream_window = 0
        self.largest = 16_384
        self.consumed = 0
        self.unsent: bytes | memoryview = b""
        self.message = bytearray()
        self.pieces = b""  # of a block that goes on in CONTINUATION
        self.pieces_end = False
        self.headers: Headers = {}

    @abstractmethod
    def ended(self, headers: Headers, trailers: Headers, message: bytearray) -> None:
        """The call has completed; the message still has gRPC's prefix of five bytes."""

    @abstractmethod
    def reset(self, code: int) -> None:
        """The server reset the stream."""

    @abstractmethod
    def broken(self, kind: str, example: str) -> None:
        """The connection has failed."""

    # ---- sending

    def open(self) -> None:
        self.transport.write(CONNECTION_PREFACE)

    def send(self, request: bytes) -> None:
        self.calling = True
        self.stream += 2
        self.stream_window = self.initial
        size = len(request)
        if size <= self.window and size <= self.stream_window and size <= self.largest:
            self.window -= size
            self.stream_window -= size
            pieces = self.frames.get(request)
            if pieces is None:  # all but the stream's number, which stands in both frames
                head, data = frame(HEADERS, END_HEADERS, 0, self.block), frame(DATA, END_STREAM, 0, request)
                pieces = self.frames[request] = head[:5], head[9:] + data[:5], data[9:]
            self.transport.write(self.stream.to_bytes(4, "big").join(pieces))
            return
        self.transport.write(frame(HEADERS, END_HEADERS, self.stream, self.block))
        self.unsent = memoryview(request)
        self._send_remaining()

    def _send_remaining(self) -> None:
        while self.unsent:
            size = min(len(self.unsent), self.window, self.stream_window, self.largest)
            if size <= 0:
                return
            piece, self.unsent = bytes(self.unsent[:size]), self.unsent[size:]
            self.window -= size
            self.stream_window -= size
            self.transport.write(frame(DATA, 0 if self.unsent else END_STREAM, self.stream, piece))

    # ---- receiving

    def data_received(self, data: bytes) -> None:
        if self.buffer:
            data = self.buffer + data
        at, end = 0, len(data)
        try:
            while end - at >= 9:
                size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
                if size > 1 << 14:
                    raise ValueError(f"a frame of {size} bytes")
                if end - at < 9 + size:
                    break
                stream = int.from_bytes(data[at + 5 : at + 9], "big") & LARGEST_WINDOW
                self._frame(data[at + 3], data[at + 4], stream, data[at + 9 : at + 9 + size])
                at += 9 + size
            self.buffer = data[at:]
        except (ValueError, struct.error, hpack.HPACKError) as error:
            self.broken("wrong: not HTTP/2", str(error))

    def taken(self, size: int) -> None:
        """Flow control: extends the server's window by `size` bytes."""
        self.consumed += size
        if self.consumed > LARGEST_WINDOW // 2:
            self.transport.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self.consumed)))
            self.consumed = 0

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self.pieces and kind != CONTINUATION:
            raise ValueError("a block of headers that is interrupted")
        if kind == DATA:
            self.taken(len(payload))
            if stream != self.stream:
                raise ValueError(f"data for stream {stream}")
            self.message += _unpadded(payload, flags)
            if flags & END_STREAM:
                self._ended({})
        elif kind == HEADERS:
            payload = _unpadded(payload, flags)
            self._headers(stream, payload[5:] if flags & PRIORITY else payload, flags, flags & END_STREAM != 0)
        elif kind == CONTINUATION:
            if not self.pieces:
                raise ValueError("a CONTINUATION of nothing")
            self._headers(stream, self.pieces + payload, flags, self.pieces_end)
        elif kind == RST_STREAM and stream == self.stream and self.calling:
            self._reset(int.from_bytes(payload, "big"))
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == PING and not flags & ACK:
            self.transport.write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream == 0:
                self.window += more
            elif stream == self.stream:
                self.stream_window += more
            self._send_remaining()
        elif kind == GOAWAY:
            self._going(payload)
        elif kind == PUSH_PROMISE:
            raise ValueError("a push that was not allowed")

    def _headers(self, stream: int, data: bytes, flags: int, last: bool) -> None:
        if not flags & END_HEADERS:
            if len(data) > LARGEST_BLOCK:
                raise ValueError("headers without end")
            self.pieces, self.pieces_end = data, last
            return
        self.pieces = b""
        found = self.blocks.get(data)
        if found is None:
            pairs = self.decoder.decode(data, raw=True)
            found = {bytes(name): bytes(value) for name, value in pairs}
            if len(self.blocks) >= MAX_CACHED_BLOCKS:
                self.blocks.clear()
            self.blocks[data] = found
        if stream != self.stream or not self.calling:
            raise ValueError(f"headers for stream {stream}")
        if last:
            self._ended(found)
        else:
            self.headers = found

    def _ended(self, trailers: Headers) -> None:
        message, self.message = self.message, bytearray()
        headers, self.headers = self.headers, {}
        if self.unsent:  # the server has its answer already, and need not read the rest
            self.unsent = b""
            self.transport.write(frame(RST_STREAM, 0, self.stream, struct.pack(">I", 0)))
        self.calling = False
        self.spent = self.spent or self.stream >= LAST_STREAM
        self.ended(headers, trailers, message)

    def _reset(self, code: int) -> None:
        self.unsent, self.message, self.headers = b"", bytearray(), {}
        self.calling = False
        self.reset(code)

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            name, value = struct.unpack_from(">HI", payload, at)
            if name == INITIAL_WINDOW:
                self.stream_window += value - self.initial
                self.initial = value
            elif name == MAX_FRAME:
                self.largest = value
        self.transport.write(frame(SETTINGS, ACK, 0))
        self._send_remaining()

    def _going(self, payload: bytes) -> None:
        """GOAWAY: what is out may still be answered, the next request needs another connection."""
        last, code = struct.unpack_from(">II", payload)
        if self.calling and self.stream <= last:
            self.spent = True
        else:
            self.broken("closed", f"GOAWAY, code {code}: {payload[8:200].decode('utf-8', 'replace')}")


def pieces_of(data: bytes, stream: int) -> tuple[bytes, ...] | None:
    """What stands between the stream's numbers, if `data` is the whole answer of that stream and nothing else."""
    pieces, at, begun, flags = [], 0, 0, 0
    while len(data) - at >= 9:
        size, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 4]
        if int.from_bytes(data[at + 5 : at + 9], "big") != stream:
            return None
        pieces.append(data[begun : at + 5])
        begun, at = at + 9, at + 9 + size
    return (*pieces, data[begun:]) if at == len(data) and flags & END_STREAM else None


def _unpadded(payload: bytes, flags: int) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ValueError("more padding than frame")
    return payload[1 : len(payload) - payload[0]]
