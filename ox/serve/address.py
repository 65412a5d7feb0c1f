"""Addresses in words: of those that cannot be had, and of clients."""

from __future__ import annotations

import asyncio
import errno

from ox.errors import ServeError

NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def unavailable(host: str, port: int, error: Exception) -> ServeError:
    """What is said of an address that cannot be had."""
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return ServeError(
            f"port {port} is in use", where=host, hint=f"another port, such as {port + 1}; 0 takes a free one"
        )
    if number == errno.EACCES:
        return ServeError(f"port {port} may not be opened", where=host, hint="a port from 1024 on, such as --port 8000")
    what = f"cannot listen on {host}, port {port}"
    if ":" in host and number in NO_IPV6:
        hint = "--host 0.0.0.0" if host == "::" else "--host 127.0.0.1"
        return ServeError(f"{what}: this system has no such IPv6 address", got=str(error), hint=hint)
    return ServeError(what, got=str(error), hint="--host 127.0.0.1")


def peer_of(transport: asyncio.BaseTransport) -> str:
    """A client's address, without its port; "" where it has none, as on a Unix domain socket."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple) or not name:
        return ""
    host = str(name[0])
    # what a socket of both kinds says of a client of IPv4
    return host[7:] if host.startswith("::ffff:") and "." in host else host
