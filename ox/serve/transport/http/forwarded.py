"""A client's address as its proxies report it: the headers X-Forwarded-For and Forwarded (RFC 7239).

Each proxy appends the address of its own client. So the list is read from its end, up to the first address that is not
a trusted proxy's: anything before that may be the client's invention.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ox.serve.config.trusted_proxies import TrustedProxies, read_address

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
QUOTED = r'"(?:[^"\\]|\\.)*"'
PAIR = re.compile(rf"[ \t]*({TOKEN})=({TOKEN}|{QUOTED})[ \t]*(;|,|\Z)")
MAX_HOPS = 64  # proxies in one list


def client_of(peer: str, headers: Mapping[bytes, bytes], proxies: TrustedProxies) -> str:
    """A client's address.

    Where a request has both headers, they must agree: a proxy replaces only the one that it knows, and a client may
    have written the other one.

    Args:
        peer: the address at the other end of the connection; "" for a Unix domain socket.
        headers: of the request.
        proxies: those whose headers count.
    """
    if (b"x-forwarded-for" not in headers and b"forwarded" not in headers) or peer not in proxies:
        return peer
    found = set()
    if (listed := headers.get(b"x-forwarded-for")) is not None:
        found.add(_last_client(peer, listed.decode("latin-1").split(",")[-MAX_HOPS:], proxies))
    if (pairs := headers.get(b"forwarded")) is not None:
        found.add(_last_client(peer, _forwarded_for(pairs.decode("latin-1")), proxies))
    return found.pop() if len(found) == 1 else peer


def _last_client(peer: str, hops: list[str], proxies: TrustedProxies) -> str:
    """The last address of the list that is not a proxy's; the first one if all are. It ends at what is no address."""
    client = peer
    for hop in reversed(hops):
        address = read_address(_without_port(hop.strip(" \t")))
        if address is None:  # such as unknown, or an identifier of the proxy's own
            break
        client = str(address)
        if client not in proxies:
            break
    return client


def _without_port(text: str) -> str:
    """An address without its port: 192.0.2.1:80, [2001:db8::1]:80, [2001:db8::1], 2001:db8::1."""
    if text.startswith("["):
        address, bracket, port = text[1:].partition("]")
        return address if bracket and (not port or _is_port(port)) else ""
    if text.count(":") == 1:
        address, _, port = text.partition(":")
        return address if _is_port(f":{port}") else ""
    return text


def _is_port(text: str) -> bool:
    return re.fullmatch(r":[0-9]{1,5}", text) is not None


def _forwarded_for(text: str) -> list[str]:
    """The values of ``for`` in the header Forwarded, one for each element; "" where an element has none. None of what
    stands before an error in the text is believed."""
    hops: list[str] = []
    hop, begin = "", 0
    while begin < len(text):
        pair = PAIR.match(text, begin)
        if pair is None:
            return []
        name, value, end = pair.groups()
        if name.lower() == "for":
            hop = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        if end != ";":
            hops.append(hop)
            hop = ""
        begin = pair.end()
    return hops[-MAX_HOPS:]
