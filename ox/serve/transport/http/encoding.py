"""gzip and deflate: decompression of requests within the body limit, compression of responses."""

from __future__ import annotations

import zlib

from ox.errors import ServeError
from ox.serve.response_memory import Body, Buffers

GZIP, ZLIB = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS
WBITS = {b"gzip": GZIP, b"deflate": ZLIB}
MIN_COMPRESSED = 1024  # bytes; compressing less costs more than it saves
MAX_COMPRESSED = 1 << 20  # bytes; compressing more would block the event loop too long
MAX_RATIO, RATIO_EXEMPT = (
    64,
    16 << 20,
)  # a body larger than MAX_RATIO times its compressed size is refused beyond these bytes


def decompress(body: bytes, encoding: bytes, max_bytes: int) -> bytes:
    """Decompresses the body of a request.

    Raises:
        ServeError: unknown encoding (415), damaged data (400), more than `max_bytes` or MAX_RATIO allow (413).
    """
    encoding = encoding.strip().lower()
    if encoding in (b"", b"identity"):
        return body
    if encoding not in WBITS:
        raise ServeError("unknown content-encoding", status=415, expected="gzip, deflate or identity")
    max_bytes = min(max_bytes, max(MAX_RATIO * len(body), RATIO_EXEMPT))
    stream = zlib.decompressobj(WBITS[encoding])
    try:
        plain = stream.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise ServeError(f"the body is not {encoding.decode()}", got=str(error)) from None
    if len(plain) > max_bytes:
        raise ServeError(
            "the body is too large after decompression",
            status=413,
            expected=f"at most {max_bytes} bytes, for one of {len(body)} (--limit body)",
        )
    if not stream.eof or stream.unused_data:
        raise ServeError(f"the body is not one whole {encoding.decode()} stream")
    return plain


def compress(body: Body, accepted: bytes, largest: int = MAX_COMPRESSED) -> tuple[Body, bytes]:
    """Compresses a body of up to `largest` bytes with the first encoding that the client accepts.

    Returns:
        the body, and the header line of its encoding.
    """
    if not MIN_COMPRESSED <= len(body) <= largest:
        return body, b""
    for entry in accepted.lower().split(b","):
        name, _, quality = entry.partition(b";")
        name = name.strip()
        if name in WBITS and quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000"):
            stream = zlib.compressobj(1, zlib.DEFLATED, WBITS[name])
            pieces = body.buffers if isinstance(body, Buffers) else (body,)
            compressed = b"".join([stream.compress(piece) for piece in pieces])
            return compressed + stream.flush(), b"content-encoding: %s\r\nvary: accept-encoding\r\n" % name
    return body, b""
