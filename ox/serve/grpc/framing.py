"""gRPC's length-prefixed messages."""

from __future__ import annotations

import zlib
from struct import Struct

from ox.serve.answer_memory import Body, Parts
from ox.serve.http.encoding import LARGEST, SMALLEST, WINDOW

PREFIX = Struct(">BL")  # whether a message is compressed, and its length


def framed(message: Body) -> Body:
    """A message as it is."""
    start = PREFIX.pack(0, len(message))
    return start + message if isinstance(message, bytes) else message.after(start)


def packed(message: Body, encoding: bytes) -> Body:
    """A message in an encoding (b"" for none), if it is of a size for which that is worth its time."""
    if not encoding or not SMALLEST <= len(message) <= LARGEST:
        return framed(message)
    stream = zlib.compressobj(1, zlib.DEFLATED, WINDOW[encoding])
    pieces = message.parts if isinstance(message, Parts) else (message,)
    data = b"".join([stream.compress(piece) for piece in pieces]) + stream.flush()
    return PREFIX.pack(1, len(data)) + data
