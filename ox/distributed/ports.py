"""Listening at an address: on the loopback only this machine can connect."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether all ranks are meant to be on this machine. A host name counts as no, for many systems give their own
    name an address of the loopback."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int, backlog: int = socket.SOMAXCONN) -> socket.socket:
    """Listens at a loopback address, or else at all addresses of this machine. Raises OSError."""
    if is_loopback(host):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=backlog)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=backlog)


PORTS = range(20_000, 30_000)  # outgoing connections get ports from 32768 on Linux, from 49152 elsewhere
ATTEMPTS = 100


def free_port() -> int:
    """A TCP port of `PORTS` that nobody listens at now. No outgoing connection takes it before somebody listens there.

    Raises:
        OSError: none was found.
    """
    for port in random.SystemRandom().sample(PORTS, ATTEMPTS):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("", port))
            return port
    raise OSError(errno.EADDRINUSE, f"{ATTEMPTS} ports between {PORTS.start} and {PORTS.stop} are all in use")


def is_local(host: str) -> bool:
    """Whether a host is this machine: its address can be bound."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:  # a name that is not known yet, perhaps
        return False
    for family, kind, _, _, address in found:
        try:
            with socket.socket(family, kind) as probe:
                probe.bind((address[0], 0))
                return True
        except OSError:
            continue
    return False
