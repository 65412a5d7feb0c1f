"""Origins of web pages, as `ox serve --allow-origin` takes them (RFC 6454; the URL standard, 4.5 and 4.7)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from ox.errors import ArgumentError

ANY_ORIGIN = "*"
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?)(?::([0-9]{1,5}))?")
DEFAULT_PORTS = {"http": 80, "https": 443}
# Of pages without an origin, and of no pages. Others are of applications with a browser inside, or of its extensions.
OPAQUE, PAGELESS = ("about", "blob", "data", "file", "javascript"), ("ftp", "ws", "wss")
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # as the last part of a host: browsers read such a host as an IPv4 address


def check_origins(texts: str | Iterable[str]) -> tuple[str, ...]:
    """Origins as browsers write them in the header Origin: in lower case, without a default port.

    Args:
        texts: one origin, or several; "*" stands for all of them.

    Raises:
        ArgumentError: a text is not an origin.
    """
    return tuple(dict.fromkeys(_origin(text) for text in ([texts] if isinstance(texts, str) else texts)))


def _origin(text: str) -> str:
    if text == ANY_ORIGIN:
        return text
    match = ORIGIN.fullmatch(text.lower())
    scheme, host, port = ("", "", None) if match is None else match.groups()
    host = _normal_host(host)
    if not host or scheme in OPAQUE + PAGELESS or not (port is None or 1 <= int(port) <= 65535):
        raise ArgumentError(
            "not an origin of a web page",
            where="--allow-origin",
            expected="https://HOST or https://HOST:PORT, also with http or the scheme of an application, or * for all",
            got=repr(text[:200]),
            hint=_hint(text),
        )
    if port is None or int(port) == DEFAULT_PORTS.get(scheme):
        return f"{scheme}://{host}"
    return f"{scheme}://{host}:{int(port)}"


def _normal_host(host: str) -> str:
    """A host as browsers write it, "" if it is not valid."""
    try:
        if host.startswith("["):
            address = IPv6Address(host[1:-1])
            low = int(address) & 0xFFFFFFFF
            return f"[{address}]" if address.ipv4_mapped is None else f"[::ffff:{low >> 16:x}:{low & 0xFFFF:x}]"
        if NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]):
            return str(IPv4Address(host))
    except AddressValueError:
        return ""
    return "" if ".." in host else host


def _hint(text: str) -> str:
    scheme, mark, rest = text.strip().partition("://")
    if text == "null" or scheme.lower() in OPAQUE:
        return "pages without an origin, such as files, send null: only * allows them"
    if not text.isascii():
        return "the name as browsers send it, which begins with xn--"
    if "*" in text:
        return "each origin in an option of its own; names have no patterns"
    if "," in text or " " in text.strip():
        return "each origin in an option of its own"
    if not mark:
        return f"https://{text.strip().strip('/')}" if text.strip(" /") else "https://example.org"
    if scheme.lower() in PAGELESS:
        return f"https://{rest}"
    host = re.split("[/?#]", rest)[0].rpartition("@")[2]
    if host == rest:
        return "the host and port as browsers show them: an IPv4 address is four decimal numbers"
    return f"{scheme}://{host}, without a path"
