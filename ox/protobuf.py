"""Protobuf's wire format, as far as it is written without generated code."""

from __future__ import annotations

VARINT, BYTES = 0, 2


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number is written as 64 bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: int | str | bytes) -> bytes:
    """An integer, a string, or bytes: also those of a message."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(data)) + data
