"""Reads and writes a part of protobuf's wire format without protobuf.

A ModelInferRequest consists of a small head (names, shapes, parameters) and the bytes of its tensors. Splitting them
before protobuf parses the head avoids two copies of every tensor, allows a cache of parsed heads, and limits the memory
of messages with many tiny fields.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from ox.errors import ServeError

ID, RAW = 0x1A, 0x3A  # tags of ModelInferRequest.id and .raw_input_contents
MAX_FIELDS = 4096  # of one request
MAX_SMALL_MESSAGE = 64 << 10  # bytes of a message with names and settings


class MessageParts(NamedTuple):
    """A ModelInferRequest in parts.

    Args:
        head: all other fields.
        id: the request's id, "" for none.
        raw: offset and size of each tensor's bytes.
    """

    head: bytes
    id: str
    raw: list[tuple[int, int]]


class MessageLayout(NamedTuple):
    """The start of a message with one tensor at its end, and its parts."""

    start: bytes
    parts: MessageParts


def layout_of(body: bytes, parts: MessageParts) -> MessageLayout | None:
    """The layout for later messages of the same length; None for several tensors or an id."""
    if len(parts.raw) != 1 or parts.id:
        return None
    ((at, size),) = parts.raw
    return MessageLayout(body[:at], parts) if at + size == len(body) else None


def split_message(body: bytes) -> MessageParts:
    """Splits a serialised ModelInferRequest.

    Raises:
        ServeError: malformed, or too many fields.
    """
    head_parts: list[bytes] = []
    raw: list[tuple[int, int]] = []
    identifier = b""
    at, begun, end = 0, 0, len(body)  # `begun`: the start of the bytes not yet in `head_parts`
    try:
        for _ in range(MAX_FIELDS):
            if at >= end:
                break
            start = at
            tag = body[at]
            if tag & 0x87 != 2:  # not length-delimited, or a large field number: not `id` or raw contents
                at = _skip_field(body, at)
                continue
            size = body[at + 1]
            at += 2
            if size > 127:
                size, at = _read_varint(body, at - 1)
            if tag in (RAW, ID):
                if begun != start:
                    head_parts.append(body[begun:start])
                if tag == RAW:
                    raw.append((at, size))
                else:
                    identifier = body[at : at + size]
                begun = at + size
            at += size
        else:
            if at < end:
                raise ServeError("the request has too many parts", status=413, expected=f"at most {MAX_FIELDS}")
        if at != end:
            raise IndexError
        if begun != end:
            head_parts.append(body[begun:])
        return MessageParts(head_parts[0] if len(head_parts) == 1 else b"".join(head_parts), identifier.decode(), raw)
    except IndexError:
        raise malformed("ModelInferRequest", "it ends in the middle of a field") from None
    except UnicodeDecodeError:
        raise malformed("ModelInferRequest", "an id that is not UTF-8") from None


def size_limit(size: int) -> str:
    """The limit of a message in an error: `RequestLimits.body`, or less for methods with small messages."""
    return f"at most {size} bytes" + (" (--limit body)" if size > MAX_SMALL_MESSAGE else "")


def parse(kind: Any, body: bytes, max_bytes: int = MAX_SMALL_MESSAGE) -> Any:
    """Parses a message of a class.

    Raises:
        ServeError: more than `max_bytes` bytes, too many fields, or malformed.
    """
    if len(body) > max_bytes:
        raise ServeError("the message is too large", status=413, expected=size_limit(max_bytes), got=str(len(body)))
    name = kind.DESCRIPTOR.name
    if len(body) > MAX_SMALL_MESSAGE:  # tiny fields could take a hundred times their bytes in memory
        check_field_count(name, body)
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise malformed(name, str(error)) from None


def check_field_count(name: str, body: bytes) -> None:
    """Counts the fields of a message.

    Raises:
        ServeError: too many fields, or malformed.
    """
    at, count = 0, 0
    try:
        while at < len(body):
            at, count = _skip_field(body, at), count + 1
            if count > MAX_FIELDS:
                raise ServeError("the message has too many parts", status=413, expected=f"at most {MAX_FIELDS}")
        if at != len(body):
            raise IndexError
    except IndexError:
        raise malformed(name, "it ends in the middle of a field") from None


def malformed(name: str, got: str) -> ServeError:
    return ServeError(f"the message is not a valid {name}", got=got)


def _skip_field(body: bytes, at: int) -> int:
    """The end of the field that begins at `at`."""
    tag, at = _read_varint(body, at)
    match tag & 7:
        case 0:
            return _read_varint(body, at)[1]
        case 1:
            return at + 8
        case 2:
            size, at = _read_varint(body, at)
            return at + size
        case 5:
            return at + 4
    raise malformed("ModelInferRequest", f"a field of wire type {tag & 7}")


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    """Reads a varint; returns its value and its end."""
    value = shift = 0
    while shift < 70:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise malformed("ModelInferRequest", "a varint that is too long")
