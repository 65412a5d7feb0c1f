"""The zip archive that `torch.save` writes: entries that are stored, not compressed, and where their bytes lie.

All sizes and places are checked against the file, and against one another, before anything is read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import IO

from ox.serialization.torch_checkpoint.errors import MIB, UnreadableError

_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_LARGEST_DIRECTORY = 16 * MIB  # some 200,000 tensors
_FULL = 0xFFFFFFFF  # the number is too large for its field, and stands in the zip64 part


@dataclass(frozen=True)
class Entry:
    """The bytes of one entry in the file; a checksum of 0 is none: PyTorch can be configured to write none."""

    offset: int
    size: int
    crc: int
    stored: bool  # neither compressed nor encrypted


def entries(file: IO[bytes]) -> dict[str, Entry]:
    """All entries by name, the archive's own folder left out: ``data.pkl``, ``data/0``, ``byteorder``.

    Raises:
        UnreadableError: a directory that does not fit the file, entries outside it or over one another.
    """
    start, directory = _directory(file)
    found: dict[str, Entry] = {}
    spans = []
    for name, local, size, crc, stored in _headers(directory):
        file.seek(local)
        head = file.read(30)
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            raise UnreadableError(f"a damaged archive: no entry begins where {name!r} should")
        name_length, extra_length = struct.unpack("<HH", head[26:30])
        offset = local + 30 + name_length + extra_length
        if file.read(name_length) != name.encode() or offset + size > start:
            raise UnreadableError(f"a damaged archive: {name!r} is not where the directory says")
        short = name.partition("/")[2]
        if short in found:
            raise UnreadableError(f"an archive with two entries of the name {name!r}")
        spans.append((local, offset + size, name))
        found[short] = Entry(offset, size, crc, stored)
    spans.sort()
    for (_, end, first), (begin, _, second) in pairwise(spans):
        if end > begin:
            raise UnreadableError(f"an archive in which {first!r} and {second!r} lie over one another")
    return found


def _directory(file: IO[bytes]) -> tuple[int, bytes]:
    """Where the central directory begins, and its bytes."""
    length = file.seek(0, os.SEEK_END)
    tail_start = max(0, length - 22 - 0xFFFF - 20 - 56)
    file.seek(tail_start)
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + 22:
        raise UnreadableError(
            "a damaged archive: it has no directory at its end", hint="the whole file; this one is cut"
        )
    size, start = struct.unpack("<II", tail[at + 12 : at + 20])
    end = tail_start + at
    if at >= 20 and tail[at - 20 : at - 16] == _LOCATOR64:
        (place,) = struct.unpack("<Q", tail[at - 12 : at - 4])
        if place > length - 56:
            raise UnreadableError("a damaged archive: its directory lies outside the file")
        file.seek(place)
        record = file.read(56)
        if record[:4] != _END64:
            raise UnreadableError("a damaged archive: its directory is not where it says")
        size, start = struct.unpack("<QQ", record[40:56])
        end = place
    if size > _LARGEST_DIRECTORY or start + size > end:
        raise UnreadableError("a damaged archive: its directory does not fit the file")
    file.seek(start)
    return start, file.read(size)


def _headers(directory: bytes) -> Iterator[tuple[str, int, int, int, bool]]:
    """Name, place of the local header, size in the file, checksum and whether it is stored, for each but folders."""
    at = 0
    while at < len(directory):
        if directory[at : at + 4] != b"PK\x01\x02" or at + 46 > len(directory):
            raise UnreadableError("a damaged archive: its directory breaks off")
        flags, method = struct.unpack("<HH", directory[at + 8 : at + 12])
        crc, packed, size, name_length, extra_length, comment_length = struct.unpack(
            "<IIIHHH", directory[at + 16 : at + 34]
        )
        (local,) = struct.unpack("<I", directory[at + 42 : at + 46])
        name_end = at + 46 + name_length
        name = directory[at + 46 : name_end].decode()
        extra = directory[name_end : name_end + extra_length]
        size, packed, local = _widened(extra, size, packed, local)
        at = name_end + extra_length + comment_length
        if name.endswith("/"):
            continue
        yield name, local, packed, crc, method == 0 and not flags & 1 and size == packed


def _widened(extra: bytes, size: int, packed: int, local: int) -> tuple[int, int, int]:
    """The three numbers; those that did not fit 32 bits come from the zip64 part, in this order."""
    if _FULL not in (size, packed, local):
        return size, packed, local
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack("<HH", extra[at : at + 4])
        if kind == 1:
            wide = iter(struct.unpack(f"<{length // 8}Q", extra[at + 4 : at + 4 + length // 8 * 8]))
            size, packed, local = (next(wide, n) if n == _FULL else n for n in (size, packed, local))
            break
        at += 4 + length
    return size, packed, local
