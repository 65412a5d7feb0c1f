"""What RFC 9110 and 9112 ask of a head beyond its grammar, which the parser holds it to."""

from __future__ import annotations

import re
from collections.abc import Callable

from ox.errors import ServeError
from ox.serve.limits import Limits

SINGLE = (b"host", b"content-length", b"transfer-encoding")  # twice, and two readers may disagree where a request ends
# a name, an IPv4 address or an IPv6 one in brackets, and perhaps a port; empty where the target has no authority
HOST = re.compile(rb"([A-Za-z0-9_.~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")


def introduced(version: str, host: bytes | None) -> None:
    """Who speaks what to whom. It rarely differs between two requests of one connection.

    Raises:
        ServeError: the version is another one (505), or the host is missing or none.
    """
    if version not in ("1.1", "1.0"):
        raise ServeError("this version of HTTP is not spoken here", status=505, expected="HTTP/1.1", got=version)
    if host is None:
        if version == "1.1":
            raise ServeError("the header host is missing")
    elif HOST.fullmatch(host) is None:
        raise ServeError("the header host is not a host")


def framed(headers: dict[bytes, bytes], version: Callable[[], str], limits: Limits) -> None:
    """How the end of the body is found.

    Raises:
        ServeError: two readers might find different ones, or it is too far away (413).
    """
    if b"transfer-encoding" in headers:
        if b"content-length" in headers:
            raise ServeError("content-length and transfer-encoding exclude each other")
        if headers[b"transfer-encoding"].lower() != b"chunked":
            raise ServeError("unknown transfer-encoding", status=501, expected="chunked")
        if version() == "1.0":  # whoever passed it on may not know chunks
            raise ServeError("HTTP/1.0 has no transfer-encoding")
    elif int(headers.get(b"content-length", b"0")) > limits.body:
        raise body_too_large(limits)


def persists(connection: bytes) -> bool:
    """Whether a client of HTTP/1.0 asks to stay, by its header of that name (RFC 9112 9.3)."""
    options = {option.strip() for option in connection.lower().split(b",")}
    return b"keep-alive" in options and b"close" not in options


def head_too_large(limits: Limits) -> ServeError:
    most = f"at most {limits.header_bytes} bytes in {limits.header_count} headers (--limit header_bytes, header_count)"
    return ServeError("the headers are too large", status=431, expected=most)


def body_too_large(limits: Limits) -> ServeError:
    return ServeError("the body is too large", status=413, expected=f"at most {limits.body} bytes (--limit body)")


def blank(data: bytes) -> int:
    """How many bytes of blank lines come before a request."""
    return len(data) - len(data.lstrip(b"\r\n"))
