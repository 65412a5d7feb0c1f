"""Where the server is: the URL that a person types."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import quote, urlsplit

from ox.errors import ArgumentError

SCHEMES = {"http": (False, False), "https": (False, True), "grpc": (True, False), "grpcs": (True, True)}
APIS = ("/v1", "/v2")  # a path with one at its end is that of an API below the server's URL
LOCAL = {"unix:": False, "grpc+unix:": True}
P = TypeVar("P", bound=asyncio.Protocol)


@dataclass(frozen=True)
class Address:
    """A server's address, and the key that it may want; `path` is that of a Unix domain socket, in place of a port, and
    `root` the path under which a proxy publishes the server."""

    host: str
    port: int
    grpc: bool
    tls: bool
    key: str | None = None
    path: str | None = None
    root: str = ""

    @property
    def url(self) -> str:
        if self.path is not None:
            return f"{'grpc+' if self.grpc else ''}unix:{self.path}"
        scheme = next(name for name, kinds in SCHEMES.items() if kinds == (self.grpc, self.tls))
        return f"{scheme}://{self.authority}{self.root}"

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

    async def connect(self, factory: Callable[[], P], context: ssl.SSLContext | None) -> tuple[asyncio.Transport, P]:
        """A connection of the running loop; `context` is from `context()`."""
        loop = asyncio.get_running_loop()
        if self.path is not None:
            transport, protocol = await loop.create_unix_connection(factory, self.path)
        else:
            transport, protocol = await loop.create_connection(factory, self.host, self.port, ssl=context)
        return transport, protocol

    def http_connection(self, timeout: float) -> http.client.HTTPConnection:
        """A connection for single questions."""
        if self.path is not None:
            return LocalConnection(self.path, timeout)
        context = self.context()
        if context is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)


class LocalConnection(http.client.HTTPConnection):
    """HTTP over a Unix domain socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def parse(url: str, key: str | None = None) -> Address:
    """Raises ArgumentError for what is no address of a server."""
    expected = "http://, https://, grpc:// or grpcs:// with a host, such as http://127.0.0.1:8000; or unix:PATH"
    if key is not None and (not key.isascii() or not key.isprintable()):
        raise ArgumentError("the key cannot be sent in a header", expected="printable ASCII")
    for scheme, grpc in LOCAL.items():
        path = url.removeprefix(scheme).removeprefix("//")
        if url.startswith(scheme) and path:
            return Address("localhost", 80, grpc, False, key, path)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ArgumentError("the URL cannot be read", expected=expected, got=f"{url!r} ({error})") from None
    root = quote(parts.path.rstrip("/"), safe="/%:@+,=!$*")
    wrong_path = root.endswith(APIS) or (root and SCHEMES.get(parts.scheme, (True, True))[0])
    if parts.scheme not in SCHEMES or not parts.hostname or wrong_path or parts.query or parts.fragment:
        raise ArgumentError("this is not the URL of a server", expected=expected, got=repr(url))
    grpc, tls = SCHEMES[parts.scheme]
    return Address(parts.hostname, port or (8001 if grpc else 443 if tls else 8000), grpc, tls, key, root=root)
