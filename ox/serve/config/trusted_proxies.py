"""The reverse proxies whose word on a client's address counts (`ox serve --forwarded-allow-ips`)."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from ox.errors import ArgumentError

ANY, UNIX = "*", "unix"
Address = IPv4Address | IPv6Address


def check_addresses(texts: str | Iterable[str]) -> tuple[str, ...]:
    """Addresses of proxies; a text may have several with commas.

    Args:
        texts: IP addresses and networks; "unix" for the clients of a Unix domain socket; "*" for all clients.

    Raises:
        ArgumentError: a text is none of these.
    """
    parts = [part.strip() for text in ([texts] if isinstance(texts, str) else texts) for part in text.split(",")]
    for part in parts:
        if part not in (ANY, UNIX):
            _network(part)
    return tuple(dict.fromkeys(parts))


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ArgumentError(
            "not the address of a proxy",
            where="--forwarded-allow-ips",
            expected="IP addresses or networks with commas, unix, or * for all clients",
            got=str(error) if text else "an empty text",
            hint="127.0.0.1,10.0.0.0/8",
        ) from None


class TrustedProxies:
    """Tells proxies from clients by their addresses.

    Args:
        texts: see `check_addresses`.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        names = check_addresses(texts)
        self._any, self._unix = ANY in names, UNIX in names or ANY in names
        self._networks = [_network(name) for name in names if name not in (ANY, UNIX)]

    def __contains__(self, address: str) -> bool:
        """Whether a proxy has the address; "" is that of a Unix domain socket."""
        if not address:
            return self._unix
        if self._any:
            return True
        known = read_address(address)
        return known is not None and any(known in network for network in self._networks)


def read_address(text: str) -> Address | None:
    """The IP address that a text is, without an IPv6 zone, which has a meaning on one machine only and may be any text;
    None for another text. An IPv4 address that is written as IPv6 is one of IPv4."""
    try:
        address = ip_address(text.partition("%")[0] if ":" in text else text)
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address
