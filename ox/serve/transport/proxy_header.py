"""The PROXY protocol, versions 1 and 2: whose connection a load balancer forwards (HAProxy's proxy-protocol.txt).

The header comes before TLS and HTTP. It is read from the socket without a byte of what follows, so that any protocol
can continue there.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from ox.serve.config.trusted_proxies import read_address

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"  # of version 2; longer than any part of version 1 that ends early
MAX_LINE = 107  # bytes of a header of version 1 with its line end
MAX_BLOCK = 4096  # bytes of the addresses and extensions of version 2
LINE = re.compile(rb"PROXY (TCP4|TCP6) ([0-9.]+|[0-9A-Fa-f:.]+) ([0-9.]+|[0-9A-Fa-f:.]+) (\d{1,5}) (\d{1,5})")
UNKNOWN = re.compile(rb"PROXY UNKNOWN(?: [ -~]*)?")
LOCAL, PROXY = 0x20, 0x21  # version and command
# By family and transport: the size of the addresses, and of the first of them. The others are not of streams.
ADDRESSES = {0x11: (12, 4), 0x21: (36, 16), 0x31: (216, 108)}
UNSPECIFIED, UNIX = 0x00, 0x31
CHECKSUM = 0x03  # the type of the extension with the CRC-32C of the header, in which itself counts as zero
CRC32C = 0x82F63B78  # Castagnoli's polynomial, its bits reversed


class ProxyHeaderError(Exception):
    """What is wrong with the first bytes of a connection."""


async def read_proxy_header(sock: socket.socket) -> str | None:
    """Reads a header from a non-blocking socket.

    Returns:
        The client's address, "" for one at a Unix domain socket; None if the load balancer asks for itself (a health
        check), or does not know the address.

    Raises:
        ProxyHeaderError: there is no valid header.
    """
    begin = await _receive(sock, len(SIGNATURE), b"")
    if begin == SIGNATURE:
        command, family, size = struct.unpack("!BBH", await _receive(sock, 4, begin))
        if size > MAX_BLOCK:
            raise ProxyHeaderError(f"the PROXY header is larger than {MAX_BLOCK} bytes")
        return parse_block(command, family, await _receive(sock, size, begin))
    return parse_line(await _receive_line(sock, begin))


async def _receive(sock: socket.socket, size: int, before: bytes) -> bytes:
    """Exactly that many bytes, which follow others of a header."""
    data = b""
    loop = asyncio.get_running_loop()
    while len(data) < size:
        part = await loop.sock_recv(sock, size - len(data))
        if not part:
            raise ProxyHeaderError("the PROXY header is incomplete" if before or data else "")
        data += part
        if not before and not (SIGNATURE.startswith(data) or data.startswith(b"PROXY "[: len(data)])):
            raise ProxyHeaderError("the connection does not begin with a PROXY header")
    return data


async def _receive_line(sock: socket.socket, line: bytes) -> bytes:
    """The rest of a line that has begun. What is peeked at is only taken up to the line's end."""
    loop = asyncio.get_running_loop()
    while not line.endswith(b"\n"):
        if len(line) == MAX_LINE:
            raise ProxyHeaderError(f"the PROXY header is longer than {MAX_LINE} bytes")
        try:
            ahead = sock.recv(MAX_LINE - len(line), socket.MSG_PEEK)
        except BlockingIOError:
            ahead = b""
        size = ahead.find(b"\n") + 1 or len(ahead) or 1  # of nothing yet: wait for one byte, which belongs to the line
        part = await loop.sock_recv(sock, size)
        if not part:
            raise ProxyHeaderError("the PROXY header is incomplete")
        line += part
    return line


def parse_line(line: bytes) -> str | None:
    """The client's address in a header of version 1; see `read_proxy_header`."""
    if not line.endswith(b"\r\n"):
        raise ProxyHeaderError("the PROXY header does not end with a carriage return and a line feed")
    line = line[:-2]
    if UNKNOWN.fullmatch(line):
        return None
    match = LINE.fullmatch(line)
    if match is not None:
        version = IPv4Address if match[1] == b"TCP4" else IPv6Address
        try:
            source, _ = (version(text.decode()) for text in (match[2], match[3]))
        except ValueError:
            pass
        else:
            if all(int(port) <= 65535 and str(int(port)).encode() == port for port in (match[4], match[5])):
                return _text(source)
    raise ProxyHeaderError(f"invalid PROXY header {line!r}")


def parse_block(command: int, family: int, block: bytes) -> str | None:
    """The client's address in a header of version 2; see `read_proxy_header`.

    Args:
        command: version and command.
        family: address family and transport.
        block: addresses and extensions.
    """
    if command not in (LOCAL, PROXY):
        raise ProxyHeaderError(f"unknown version and command of a PROXY header: 0x{command:02x}")
    if family != UNSPECIFIED and family not in ADDRESSES:
        raise ProxyHeaderError(f"unknown address family of a PROXY header: 0x{family:02x}")
    size, length = ADDRESSES.get(family, (0, 0))
    if command == LOCAL or family == UNSPECIFIED:  # whatever follows is to be skipped
        return None
    if len(block) < size:
        raise ProxyHeaderError("the PROXY header is too short for its addresses")
    place = _checksum_place(block, size)
    if place is not None:
        header = SIGNATURE + struct.pack("!BBH", command, family, len(block))
        if crc32c(header + block[:place] + bytes(4) + block[place + 4 :]) != int.from_bytes(block[place : place + 4]):
            raise ProxyHeaderError("the checksum of the PROXY header is wrong")
    return "" if family == UNIX else _text(ip_address(block[:length]))


def _checksum_place(block: bytes, begin: int) -> int | None:
    """Where the checksum stands among the extensions, the first of which begins at `begin`; None without one. Each
    extension is a type, a length of two bytes, and that many bytes."""
    place = None
    while begin < len(block):
        size = int.from_bytes(block[begin + 1 : begin + 3])
        if block[begin] == CHECKSUM:
            if size != 4 or place is not None:
                raise ProxyHeaderError("a PROXY header has one checksum, of four bytes")
            place = begin + 3
        begin += 3 + size
    if begin != len(block):
        raise ProxyHeaderError("an extension of the PROXY header is cut off")
    return place


def crc32c(data: bytes) -> int:
    """The CRC-32C of data (RFC 9260, appendix A)."""
    table = _crc_table()
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ table[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


@cache
def _crc_table() -> list[int]:
    """The remainders of all bytes."""
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (CRC32C if value & 1 else 0) for value in table]
    return table


def _text(address: IPv4Address | IPv6Address) -> str:
    return str(read_address(str(address)))
