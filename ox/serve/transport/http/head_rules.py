"""Rules of RFC 9110 and 9112 for request heads that the parser does not check."""

from __future__ import annotations

import re
from collections.abc import Callable

from ox.errors import ServeError
from ox.serve.config.request_limits import RequestLimits

SINGLETON_HEADERS = (
    b"host",
    b"content-length",
    b"transfer-encoding",
)  # duplicates allow request smuggling
# a name, an IPv4 address or an IPv6 address in brackets, with an optional port; may be empty
HOST = re.compile(rb"([A-Za-z0-9_.~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")


def check_version_and_host(version: str, host: bytes | None) -> None:
    """Checks the HTTP version and the Host header, which rarely change within a connection.

    Raises:
        ServeError: unsupported version (505), missing or invalid host (400).
    """
    if version not in ("1.1", "1.0"):
        raise ServeError("unsupported HTTP version", status=505, expected="HTTP/1.1", got=version)
    if host is None:
        if version == "1.1":
            raise ServeError("the header host is missing")
    elif HOST.fullmatch(host) is None:
        raise ServeError("the header host is invalid")


def check_body_length(headers: dict[bytes, bytes], version: Callable[[], str], limits: RequestLimits) -> None:
    """Checks the headers that define the length of the body.

    Raises:
        ServeError: the length is ambiguous (400), unsupported (501) or above the limit (413).
    """
    if b"transfer-encoding" in headers:
        if b"content-length" in headers:
            raise ServeError("content-length and transfer-encoding exclude each other")
        if headers[b"transfer-encoding"].lower() != b"chunked":
            raise ServeError("unknown transfer-encoding", status=501, expected="chunked")
        if version() == "1.0":  # a proxy of HTTP/1.0 may not know chunked encoding
            raise ServeError("HTTP/1.0 has no transfer-encoding")
    elif int(headers.get(b"content-length", b"0")) > limits.body:
        raise body_too_large(limits)


def wants_keep_alive(connection: bytes) -> bool:
    """Whether the Connection header of an HTTP/1.0 request asks for keep-alive (RFC 9112 9.3)."""
    options = {option.strip() for option in connection.lower().split(b",")}
    return b"keep-alive" in options and b"close" not in options


def head_too_large(limits: RequestLimits) -> ServeError:
    expected = (
        f"at most {limits.header_bytes} bytes in {limits.header_count} headers (--limit header_bytes, header_count)"
    )
    return ServeError("the headers are too large", status=431, expected=expected)


def body_too_large(limits: RequestLimits) -> ServeError:
    return ServeError("the body is too large", status=413, expected=f"at most {limits.body} bytes (--limit body)")


def leading_blank_bytes(data: bytes) -> int:
    """The number of bytes of blank lines before a request."""
    return len(data) - len(data.lstrip(b"\r\n"))
