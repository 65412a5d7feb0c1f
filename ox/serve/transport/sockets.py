"""Bound sockets for the addresses of a server; they do not listen yet."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from ox.serve.transport.address import NO_IPV6, bind_error

BIND_ATTEMPTS = 16  # to find a port that is free at every address


def bind(host: str, port: int, *, share: bool = False) -> list[socket.socket]:
    """Binds a socket to each address of `host`, all on one port; "::" means all addresses of IPv6 and IPv4.

    Args:
        host: an IP address or a host name.
        port: 0 chooses a free port.
        share: set SO_REUSEPORT, so that other processes can bind to the same port.

    Raises:
        ServeError: the server cannot bind to the addresses.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = list({(family, protocol, address): None for family, _, protocol, _, address in infos})
        for attempts_left in reversed(range(BIND_ATTEMPTS)):
            try:
                return _bind_all(addresses, port, share)
            except OSError as error:
                if port or error.errno != errno.EADDRINUSE or not attempts_left:
                    raise
    except (OSError, OverflowError, UnicodeError) as error:
        raise bind_error(host, port, error) from error
    raise AssertionError("the last try returns or raises")


def _bind_all(addresses: Sequence[tuple[int, int, Any]], port: int, share: bool) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    missing_address: OSError | None = None
    try:
        for family, protocol, address in addresses:
            try:
                sockets.append(
                    _bind_one(family, protocol, (address[0], port, *address[2:]), share, len(addresses) == 1)
                )
            except OSError as error:
                if error.errno not in NO_IPV6:
                    raise
                missing_address = error  # a name may resolve to an address that this system lacks, such as IPv6
                continue
            port = sockets[0].getsockname()[1]
    except BaseException:
        for each in sockets:
            each.close()
        raise
    if not sockets and missing_address is not None:
        raise missing_address
    return sockets


def _bind_one(family: int, protocol: int, address: Any, share: bool, only_address: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM, protocol)
    try:
        if os.name == "posix":  # connections of an earlier server may be in TIME_WAIT
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            dual_stack = only_address and ip_address(address[0].partition("%")[0]).is_unspecified
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual_stack)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock
