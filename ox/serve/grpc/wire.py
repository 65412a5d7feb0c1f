"""Protobuf's wire form, as far as it is read and written by hand.

A ModelInferRequest is a small head (names, shapes, parameters) and the bytes of its tensors. Taking them apart before
protobuf sees them saves the two copies that it would make of every tensor, lets one head be read once for all
requests that begin alike, and bounds what a message of many tiny parts would grow to in memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from ox.errors import ServeError

ID, RAW = 0x1A, 0x3A  # the tags of ModelInferRequest.id and .raw_input_contents
MOST_FIELDS = 4096  # of one request
SMALL = 64 << 10  # bytes of a message that holds names and settings


class Parts(NamedTuple):
    """A ModelInferRequest in parts.

    Args:
        head: everything else.
        id: the request's, "" for none.
        raw: where each tensor's bytes begin, and how many they are.
    """

    head: bytes
    id: str
    raw: list[tuple[int, int]]


class Layout(NamedTuple):
    """How a message of one tensor begins, up to the tensor's bytes, which end it; and its parts."""

    start: bytes
    parts: Parts


def layout_of(body: bytes, parts: Parts) -> Layout | None:
    """What a message has in common with the next one of its length; None if it has several tensors or an id."""
    if len(parts.raw) != 1 or parts.id:
        return None
    ((at, size),) = parts.raw
    return Layout(body[:at], parts) if at + size == len(body) else None


def split(body: bytes) -> Parts:
    """Takes a serialised ModelInferRequest apart.

    Raises:
        ServeError: it is not one, or has too many fields.
    """
    kept: list[bytes] = []
    raw: list[tuple[int, int]] = []
    identifier = b""
    at, begun, end = 0, 0, len(body)  # `begun`: where what is not yet in `kept` begins
    try:
        for _ in range(MOST_FIELDS):
            if at >= end:
                break
            start = at
            tag = body[at]
            if tag & 0x87 != 2:  # not of length and bytes, or of a large number: nothing that we know
                at = _skip(body, at)
                continue
            size = body[at + 1]
            at += 2
            if size > 127:
                size, at = _varint(body, at - 1)
            if tag in (RAW, ID):
                if begun != start:
                    kept.append(body[begun:start])
                if tag == RAW:
                    raw.append((at, size))
                else:
                    identifier = body[at : at + size]
                begun = at + size
            at += size
        else:
            if at < end:
                raise ServeError("the request has too many parts", status=413, expected=f"at most {MOST_FIELDS}")
        if at != end:
            raise IndexError
        if begun != end:
            kept.append(body[begun:])
        return Parts(kept[0] if len(kept) == 1 else b"".join(kept), identifier.decode(), raw)
    except IndexError:
        raise malformed("ModelInferRequest", "it ends in the middle of a field") from None
    except UnicodeDecodeError:
        raise malformed("ModelInferRequest", "an id that is not UTF-8") from None


def at_most(size: int) -> str:
    """What an error says of the largest message: `Limits.body`, or less where a call never needs so much."""
    return f"at most {size} bytes" + (" (--limit body)" if size > SMALL else "")


def parse(kind: Any, body: bytes, most: int = SMALL) -> Any:
    """A message of that class.

    Raises:
        ServeError: it has more than `most` bytes or too many fields, or is none.
    """
    if len(body) > most:
        raise ServeError("the message is too large", status=413, expected=at_most(most), got=str(len(body)))
    name = kind.DESCRIPTOR.name
    if len(body) > SMALL:  # where tiny fields would grow to a hundred times their bytes
        check(name, body)
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise malformed(name, str(error)) from None


def check(name: str, body: bytes) -> None:
    """Counts the fields of a message.

    Raises:
        ServeError: they are too many, or it is none.
    """
    at, count = 0, 0
    try:
        while at < len(body):
            at, count = _skip(body, at), count + 1
            if count > MOST_FIELDS:
                raise ServeError("the message has too many parts", status=413, expected=f"at most {MOST_FIELDS}")
        if at != len(body):
            raise IndexError
    except IndexError:
        raise malformed(name, "it ends in the middle of a field") from None


def malformed(name: str, got: str) -> ServeError:
    return ServeError(f"the message is not a valid {name}", got=got)


def _skip(body: bytes, at: int) -> int:
    """Where the field that begins at `at` ends."""
    tag, at = _varint(body, at)
    match tag & 7:
        case 0:
            return _varint(body, at)[1]
        case 1:
            return at + 8
        case 2:
            size, at = _varint(body, at)
            return at + size
        case 5:
            return at + 4
    raise malformed("ModelInferRequest", f"a field of wire type {tag & 7}")


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    value = shift = 0
    while shift < 70:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise malformed("ModelInferRequest", "a number that does not end")


def varint(value: int) -> bytes:
    """A number in groups of seven bits."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
