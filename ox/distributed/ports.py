"""Listening at an address: on the loopback only this machine can connect."""

from __future__ import annotations

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


def free_port() -> int:
    """A TCP port that nobody listens at now."""
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


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
