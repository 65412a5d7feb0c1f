"""gzip and deflate, both ways; a request may not grow past the body limit while it is unpacked."""

from __future__ import annotations

import zlib

from ox.errors import ServeError
from ox.serve.answer_memory import Body, Parts

GZIP, ZLIB = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS
WINDOW = {b"gzip": GZIP, b"deflate": ZLIB}
SMALLEST = 1024  # below this, packing an answer costs more than it saves
LARGEST = 1 << 20  # above this, packing it would keep everybody else waiting
RATIO, FREE = 64, 16 << 20  # beyond so many bytes, a body may not unpack to more than so many times its size


def unpack(body: bytes, encoding: bytes, most: int) -> bytes:
    """A request's body without its Content-Encoding.

    Raises:
        ServeError: an unknown encoding (415), damaged data (400), more than `most` or than it may grow (413).
    """
    encoding = encoding.strip().lower()
    if encoding in (b"", b"identity"):
        return body
    if encoding not in WINDOW:
        raise ServeError("unknown content-encoding", status=415, expected="gzip, deflate or identity")
    most = min(most, max(RATIO * len(body), FREE))
    stream = zlib.decompressobj(WINDOW[encoding])
    try:
        plain = stream.decompress(body, most + 1)
    except zlib.error as error:
        raise ServeError(f"the body is not {encoding.decode()}", got=str(error)) from None
    if len(plain) > most:
        raise ServeError(
            "the body is too large once unpacked",
            status=413,
            expected=f"at most {most} bytes, for one of {len(body)} (--limit body)",
        )
    if not stream.eof or stream.unused_data:
        raise ServeError(f"the body is not one whole {encoding.decode()} stream")
    return plain


def pack(body: Body, accepted: bytes) -> tuple[Body, bytes]:
    """The body and its header line in the first encoding that the client accepts; as it is, where that is as well."""
    if not SMALLEST <= len(body) <= LARGEST:
        return body, b""
    for entry in accepted.lower().split(b","):
        name, _, quality = entry.partition(b";")
        name = name.strip()
        if name in WINDOW and quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000"):
            stream = zlib.compressobj(1, zlib.DEFLATED, WINDOW[name])
            pieces = body.parts if isinstance(body, Parts) else (body,)
            packed = b"".join([stream.compress(piece) for piece in pieces])
            return packed + stream.flush(), b"content-encoding: %s\r\nvary: accept-encoding\r\n" % name
    return body, b""
