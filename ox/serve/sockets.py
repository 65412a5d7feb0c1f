"""Sockets for the addresses of a server, bound and not yet listening."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from ox.serve.address import NO_IPV6, unavailable

TRIES = 16  # of finding a port that is free at every address


def bind(host: str, port: int, *, share: bool = False) -> list[socket.socket]:
    """A socket for each address that `host` stands for, all on one port; "::" is every address, of IPv4 as well.

    Args:
        host: an address or a name.
        port: 0 takes a free one.
        share: whether other processes may bind to the same port.

    Raises:
        ServeError: the addresses cannot be had.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = list({(family, protocol, address): None for family, _, protocol, _, address in found})
        for left in reversed(range(TRIES)):
            try:
                return _bind(addresses, port, share)
            except OSError as error:
                if port or error.errno != errno.EADDRINUSE or not left:
                    raise
    except (OSError, OverflowError, UnicodeError) as error:
        raise unavailable(host, port, error) from error
    raise AssertionError("the last try returns or raises")


def _bind(addresses: Sequence[tuple[int, int, Any]], port: int, share: bool) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, protocol, address in addresses:
            try:
                sockets.append(_bound(family, protocol, (address[0], port, *address[2:]), share, len(addresses) == 1))
            except OSError as error:
                if error.errno not in NO_IPV6:
                    raise
                absent = error  # a name may stand for an address that this system does not have, such as IPv6's
                continue
            port = sockets[0].getsockname()[1]
    except BaseException:
        for each in sockets:
            each.close()
        raise
    if not sockets and absent is not None:
        raise absent
    return sockets


def _bound(family: int, protocol: int, address: Any, share: bool, alone: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM, protocol)
    try:
        if os.name == "posix":  # connections of an earlier server may still fade
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            both = alone and ip_address(address[0].partition("%")[0]).is_unspecified
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made
