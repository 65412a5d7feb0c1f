"""Length-prefixed messages of gRPC, and the trailers that end a call."""

from __future__ import annotations

import zlib
from struct import Struct
from urllib.parse import quote

from ox.serve.response_memory import Body, Buffers
from ox.serve.transport.http.encoding import MAX_COMPRESSED, MIN_COMPRESSED, WBITS

PREFIX = Struct(">BL")  # compressed flag and length
MAX_ERROR_BYTES = 2000  # bytes of an error message


def frame_message(message: Body) -> Body:
    """Frames a message without compression."""
    start = PREFIX.pack(0, len(message))
    return start + message if isinstance(message, bytes) else message.with_prefix(start)


def encode_message(message: Body, encoding: bytes) -> Body:
    """Frames a message, compressed with an encoding (b"" for none) if its size makes that worthwhile."""
    if not encoding or not MIN_COMPRESSED <= len(message) <= MAX_COMPRESSED:
        return frame_message(message)
    stream = zlib.compressobj(1, zlib.DEFLATED, WBITS[encoding])
    buffers = message.buffers if isinstance(message, Buffers) else (message,)
    data = b"".join([stream.compress(piece) for piece in buffers]) + stream.flush()
    return PREFIX.pack(1, len(data)) + data


def status_trailers(code: int, text: str) -> list[tuple[bytes, bytes]]:
    """The trailers with the status of a call."""
    fields = [(b"grpc-status", b"%d" % code)]
    if text:
        # gRPC percent-encodes everything except printable ASCII without the percent sign.
        short = text.encode()[:MAX_ERROR_BYTES].decode(errors="ignore")
        fields.append((b"grpc-message", quote(short, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}~").encode()))
    return fields
