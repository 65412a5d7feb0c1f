"""The body of an HTTP request: content type, encoding, length of its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.errors import ServeError
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.v2.document import load_json
from ox.serve.transport.http import Exchange
from ox.serve.transport.http.encoding import decompress

CONTENT_TYPES = {b"application/json", b"application/octet-stream", b"text/plain"}
CONTENT_TYPES |= {b"application/x-www-form-urlencoded"}  # the default of curl and urllib
EXPECTED = "application/json, or application/octet-stream with binary tensors"
Headers = Mapping[bytes, bytes]


def read_body(exchange: Exchange, limits: RequestLimits) -> bytes | bytearray:
    """The decompressed body.

    Raises:
        ServeError: unsupported content type or encoding (415), damaged data (400), too large (413).
    """
    headers = exchange.headers
    kind = headers.get(b"content-type")
    if kind is not None and kind not in CONTENT_TYPES:
        _check_type(kind)
    if b"content-encoding" in headers:
        return decompress(exchange.body, headers[b"content-encoding"], limits.body)
    return exchange.body


def _check_type(text: bytes) -> None:
    kind = text.partition(b";")[0].strip().lower()
    if kind and kind not in CONTENT_TYPES and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
        got = kind[:80].decode("latin-1")
        raise ServeError("unsupported content-type", status=415, expected=EXPECTED, got=got)


def read_json(exchange: Exchange, limits: RequestLimits) -> dict[str, Any]:
    """The JSON object of a request other than inference; {} for an empty body."""
    body = read_body(exchange, limits)
    return load_json(body) if body else {}


def read_limited_json(exchange: Exchange, limits: RequestLimits) -> dict[str, Any]:
    """As `read_json`, of no more JSON than a request for inference may have, after decompression.

    Raises:
        ServeError: too much of it (413), or what `read_body` raises.
    """
    body = read_body(exchange, limits)
    json_length({}, len(body), limits)
    return load_json(body) if body else {}


def json_length(headers: Headers, size: int, limits: RequestLimits, hint: str | None = None) -> int | None:
    """The length of the JSON in a body of `size` bytes, before binary tensors; None without binary tensors. `hint` is
    that of the error for too much JSON.

    Raises:
        ServeError: invalid length, or too much JSON (413).
    """
    header = headers.get(b"inference-header-content-length")
    length = None if header is None else _length(header, size)
    text = size if length is None else length
    if text > limits.json:
        most = f"at most {limits.json} bytes (--limit json)"
        raise ServeError("the JSON is too large", status=413, expected=most, got=f"{text} bytes", hint=hint)
    return length


def _length(text: bytes, most: int) -> int:
    if not text.isdigit() or len(text) > 12 or int(text) > most:
        expected = f"a number up to {most}, the length of the body"
        raise ServeError(
            "the header Inference-Header-Content-Length is wrong", expected=expected, got=text[:40].decode("latin-1")
        )
    return int(text)
