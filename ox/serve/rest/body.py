"""The body of a request over HTTP: its type, its encoding, and where its JSON ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.errors import ServeError
from ox.serve.http import Exchange
from ox.serve.http.encoding import unpack
from ox.serve.limits import Limits
from ox.serve.v2.document import load_json

TYPES = {b"application/json", b"application/octet-stream", b"text/plain"}
TYPES |= {b"application/x-www-form-urlencoded"}  # what curl and urllib say of any body unless told otherwise
EXPECTED = "application/json, or application/octet-stream with binary tensors"
Headers = Mapping[bytes, bytes]


def body_of(exchange: Exchange, limits: Limits) -> bytes | bytearray:
    """The body, unpacked.

    Raises:
        ServeError: it is of a type (415) or an encoding (415) that nobody reads here, or damaged, or too large.
    """
    headers = exchange.headers
    kind = headers.get(b"content-type")
    if kind is not None and kind not in TYPES:
        _check_type(kind)
    if b"content-encoding" in headers:
        return unpack(exchange.body, headers[b"content-encoding"], limits.body)
    return exchange.body


def _check_type(text: bytes) -> None:
    kind = text.partition(b";")[0].strip().lower()
    if kind and kind not in TYPES and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
        got = kind[:80].decode("latin-1")
        raise ServeError("the content-type is not one of the protocol", status=415, expected=EXPECTED, got=got)


def document_of(exchange: Exchange, limits: Limits) -> dict[str, Any]:
    """The JSON object of a call that is not inference; an empty body is an empty object."""
    body = body_of(exchange, limits)
    return load_json(body) if body else {}


def json_length(headers: Headers, size: int, limits: Limits) -> int | None:
    """Where the JSON of a body of `size` bytes ends and binary tensors begin; None if there are none.

    Raises:
        ServeError: it is no such place, or there is too much JSON.
    """
    header = headers.get(b"inference-header-content-length")
    length = None if header is None else _length(header, size)
    text = size if length is None else length
    if text > limits.json:
        most = f"at most {limits.json} bytes (--limit json)"
        hint = "fewer rows, or sending the tensors as binary data"
        raise ServeError("the JSON is too large", status=413, expected=most, got=f"{text} bytes", hint=hint)
    return length


def _length(text: bytes, most: int) -> int:
    if not text.isdigit() or len(text) > 12 or int(text) > most:
        expected = f"a number up to {most}, the length of the body"
        raise ServeError(
            "the header Inference-Header-Content-Length is wrong", expected=expected, got=text[:40].decode("latin-1")
        )
    return int(text)
