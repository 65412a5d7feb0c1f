"""Protobuf's wire format, as much of it as one message of each kind needs: no generated code, no library to install."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ox.protobuf import BYTES, VARINT, field, varint

Value = int | bytes
FIXED64, FIXED32 = 1, 5


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Every field with its number; raises ValueError for what is not protobuf."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if at + size > end:
            raise ValueError("a field that is longer than its message")
        yield number, message[at : at + size]
        at += size


def integers(values: list[Value]) -> list[int]:
    """A repeated int64, packed or not."""
    found: list[int] = []
    for value in values:
        if isinstance(value, int):
            found.append(_signed(value))
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            found.append(_signed(number))
    return found


def packed(number: int, values: list[int] | tuple[int, ...]) -> bytes:
    return field(number, b"".join(varint(value) for value in values))


def framed(message: bytes) -> bytes:
    """A message as gRPC sends it: not compressed, its length before it."""
    return struct.pack(">BI", 0, len(message)) + message


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number that does not end")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
