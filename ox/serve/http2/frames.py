"""HTTP/2's frames as bytes: RFC 9113's numbers, and what is written again and again."""

from __future__ import annotations

from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME = Struct(">BHBBL")  # length in two parts, type, flags, stream
HEAD = 9
LARGEST = 16_384  # of a frame, until the other side allows more
WINDOW = 65_535  # of a stream or connection, until the other side allows more
MOST = 0x7FFFFFFF

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED = range(6)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = range(6, 12)

TABLE_SIZE, ENABLE_PUSH, STREAMS, INITIAL_WINDOW, FRAME_SIZE, HEADER_LIST = range(1, 7)  # settings
NO_PRIORITIES = 9  # RFC 9218

_SETTING = Struct(">HL")
_LONG = Struct(">L")
_TWO = Struct(">LL")


def frame(kind: int, flags: int, ident: int, payload: bytes) -> bytes:
    size = len(payload)
    return FRAME.pack(size >> 16, size & 0xFFFF, kind, flags, ident) + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    return [(name, value) for name, value in _SETTING.iter_unpack(payload)]


def window_update(ident: int, more: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, ident, _LONG.pack(more))


def reset(ident: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, ident, _LONG.pack(code))


def goaway(last: int, code: int, text: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, _TWO.pack(last, code) + text)


class ConnectionFault(Exception):
    """The client broke a rule that concerns all of its streams: they end, and the connection with them."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamFault(Exception):
    """The client broke a rule on one stream: that stream ends."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
