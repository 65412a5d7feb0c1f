"""Errors for addresses that the server cannot bind to, and the addresses of clients."""

from __future__ import annotations

import asyncio
import errno

from ox.errors import ServeError

NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def bind_error(host: str, port: int, error: Exception) -> ServeError:
    """The error for an address that the server cannot bind to."""
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return ServeError(
            f"port {port} is in use", where=host, hint=f"another port, such as {port + 1}; 0 takes a free one"
        )
    if number == errno.EACCES:
        return ServeError(f"no permission to open port {port}", where=host, hint="--port 8000, or another above 1023")
    what = f"cannot listen on {host}, port {port}"
    if ":" in host and number in NO_IPV6:
        hint = "--host 0.0.0.0" if host == "::" else "--host 127.0.0.1"
        return ServeError(f"{what}: this system has no such IPv6 address", got=str(error), hint=hint)
    return ServeError(what, got=str(error), hint="--host 127.0.0.1")


def client_address(transport: asyncio.BaseTransport) -> str:
    """A client's IP address without its port; "" for a Unix domain socket."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple) or not name:
        return ""
    host = str(name[0])
    # a dual-stack socket reports IPv4 clients as mapped IPv6 addresses
    return host[7:] if host.startswith("::ffff:") and "." in host else host
