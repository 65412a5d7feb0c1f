"""Where the server is: the URL that a person types."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from ox.errors import ArgumentError

SCHEMES = {"http": (False, False), "https": (False, True), "grpc": (True, False), "grpcs": (True, True)}


@dataclass(frozen=True)
class Address:
    """A server's address, and the key that it may want."""

    host: str
    port: int
    grpc: bool
    tls: bool
    key: str | None = None

    @property
    def url(self) -> str:
        scheme = next(name for name, kinds in SCHEMES.items() if kinds == (self.grpc, self.tls))
        return f"{scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def plain(self) -> str:
        """The same without TLS."""
        return replace(self, tls=False).url

    def context(self) -> ssl.SSLContext | None:
        """What TLS needs; the authorities that are trusted come from the system, or from SSL_CERT_FILE."""
        if not self.tls:
            return None
        context = ssl.create_default_context()
        context.set_alpn_protocols(["h2"] if self.grpc else ["http/1.1"])
        return context


def parse(url: str, key: str | None = None) -> Address:
    """Raises ArgumentError for what is no address of a server."""
    expected = "http://, https://, grpc:// or grpcs:// with a host, such as http://127.0.0.1:8000"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ArgumentError("the URL cannot be read", expected=expected, got=f"{url!r} ({error})") from None
    if parts.scheme not in SCHEMES or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ArgumentError("this is no URL of a server", expected=expected, got=repr(url))
    if key is not None and (not key.isascii() or not key.isprintable()):
        raise ArgumentError("the key cannot stand in a header", expected="printable ASCII")
    grpc, tls = SCHEMES[parts.scheme]
    return Address(parts.hostname, port or (8001 if grpc else 443 if tls else 8000), grpc, tls, key)
