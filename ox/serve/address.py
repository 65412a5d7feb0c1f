"""What is said of an address that cannot be had."""

from __future__ import annotations

import errno

from ox.errors import ServeError


def unavailable(host: str, port: int, error: Exception) -> ServeError:
    """What is said of an address that cannot be had."""
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return ServeError(f"port {port} is in use", where=host, hint=f"--port {port + 1}, or --port 0 for a free one")
    if number == errno.EACCES:
        return ServeError(f"port {port} may not be opened", where=host, hint="a port from 1024 on, such as --port 8000")
    return ServeError(f"cannot listen on {host}, port {port}", got=str(error), hint="--host 127.0.0.1")
