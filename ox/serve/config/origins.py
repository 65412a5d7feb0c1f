"""Origins of web pages (RFC 6454), as `ox serve --allow-origin` takes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv6Address

from ox.errors import ArgumentError

ANY_ORIGIN = "*"
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)(?::([0-9]{1,5}))?")
DEFAULT_PORTS = {"http": 80, "https": 443}


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
    if match is None or not _valid_host(match[2]) or (match[3] is not None and not 1 <= int(match[3]) <= 65535):
        raise ArgumentError(
            "not an origin of a web page",
            where="--allow-origin",
            expected="SCHEME://HOST or SCHEME://HOST:PORT, or * for all",
            got=repr(text[:200]),
            hint=_hint(text),
        )
    scheme, host, port = match.groups()
    return (
        f"{scheme}://{host}"
        if port is None or int(port) == DEFAULT_PORTS.get(scheme)
        else f"{scheme}://{host}:{int(port)}"
    )


def _valid_host(host: str) -> bool:
    if not host.startswith("["):
        return ".." not in host
    try:
        IPv6Address(host[1:-1])
    except AddressValueError:
        return False
    return True


def _hint(text: str) -> str:
    if text == "null":
        return "pages without an origin, such as files, send null: only * allows them"
    if not text.isascii():
        return "the name as browsers send it, which begins with xn--"
    if "*" in text:
        return "each origin in an option of its own; names have no patterns"
    if "," in text or " " in text.strip():
        return "each origin in an option of its own"
    scheme, mark, rest = text.strip().partition("://")
    if not mark:
        return f"https://{text.strip().strip('/')}" if text.strip(" /") else "https://example.org"
    return f"{scheme}://{re.split('[/?#]', rest)[0].rpartition('@')[2]}, without a path"
