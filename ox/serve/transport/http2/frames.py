"""HTTP/2 frames as bytes: the constants of RFC 9113, and functions that encode and check frames."""

from __future__ import annotations

from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME = Struct(">BHBBL")  # length in two parts, type, flags, stream
HEADER_SIZE = 9
DEFAULT_FRAME_SIZE = 16_384  # bytes, until the peer allows more
DEFAULT_WINDOW = 65_535  # of streams and connections, until the peer allows more
MAX_INT31 = 0x7FFFFFFF

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY_FLAG = 0x1, 0x1, 0x4, 0x8, 0x20

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED = range(6)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = range(6, 12)

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)  # settings
NO_RFC7540_PRIORITIES = 9  # RFC 9218

_SETTING = Struct(">HL")
_UINT32 = Struct(">L")
_TWO_UINT32 = Struct(">LL")


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    size = len(payload)
    return FRAME.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    return [(name, value) for name, value in _SETTING.iter_unpack(payload)]


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, _UINT32.pack(increment))


def rst_stream(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, _UINT32.pack(code))


def goaway(last_stream_id: int, code: int, text: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, _TWO_UINT32.pack(last_stream_id, code) + text)


class Http2ConnectionError(Exception):
    """A connection error (RFC 9113 5.4.1): closes the connection with all its streams."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Http2StreamError(Exception):
    """A stream error (RFC 9113 5.4.2): resets one stream."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def strip_padding(data: bytes, begin: int, end: int) -> tuple[int, int]:
    """The bounds of a padded frame's payload without the padding."""
    if begin == end:
        raise Http2ConnectionError(FRAME_SIZE_ERROR, "a padded frame is empty")
    if begin + 1 + data[begin] > end:
        raise Http2ConnectionError(PROTOCOL_ERROR, "the padding is longer than the frame")
    return begin + 1, end - data[begin]


def header_block_bounds(data: bytes, begin: int, end: int, flags: int, stream_id: int) -> tuple[int, int]:
    """The bounds of the header block in a HEADERS frame, without padding and priority."""
    if flags & PADDED:
        begin, end = strip_padding(data, begin, end)
    if flags & PRIORITY_FLAG:
        if end - begin < 5:
            raise Http2ConnectionError(FRAME_SIZE_ERROR, "a HEADERS frame is too short for its priority")
        if int.from_bytes(data[begin : begin + 4], "big") & MAX_INT31 == stream_id:
            raise Http2ConnectionError(PROTOCOL_ERROR, "a stream depends on itself")
        begin += 5
    return begin, end
