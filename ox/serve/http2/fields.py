"""HPACK's decoder (RFC 7541) on the tables of the `hpack` library, whose own takes ten times as long a field.

That matters because one byte may stand for a field: clients could keep a server busy with next to nothing. For the same
reason it counts while it decodes.
"""

from __future__ import annotations

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from ox.serve.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, ConnectionFault

Field = tuple[bytes, bytes]

TABLE = HeaderTable.DEFAULT_SIZE  # what clients may use, as we never said otherwise
STATIC = HeaderTable.STATIC_TABLE
OVERHEAD = 32  # what a field counts beside its bytes


class Decoder:
    """One client's dynamic table.

    Args:
        most_bytes, most_count: of the fields of one block; beyond, the connection ends.
    """

    def __init__(self, most_bytes: int, most_count: int) -> None:
        self._most_bytes, self._most_count = most_bytes, most_count
        self._table = HeaderTable()
        self.changed = False  # the last block changed the table

    def decode(self, block: bytes) -> list[Field]:
        """The fields of a whole header block.

        Raises:
            ConnectionFault: it is not HPACK, or too large; the table can no longer be trusted.
        """
        self.changed = False
        try:
            return self._decode(block)
        except IndexError:
            raise ConnectionFault(COMPRESSION_ERROR, "a header block ends in the middle of a field") from None
        except HPACKError as error:
            raise ConnectionFault(COMPRESSION_ERROR, f"not HPACK: {str(error)[:100]}") from None

    def _decode(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        at, end, size = 0, len(block), 0
        while at < end:
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 0x7F)
                field = self._entry(index)
            elif first & 0x40:
                field, at = self._literal(block, at, 0x3F)
                self._table.add(*field)
                self.changed = True
            elif first & 0x20:
                at = self._resize(block, at, fields)
                continue
            else:
                field, at = self._literal(block, at, 0x0F)
            size += len(field[0]) + len(field[1]) + OVERHEAD
            fields.append(field)
            if size > self._most_bytes or len(fields) > self._most_count:
                raise ConnectionFault(ENHANCE_YOUR_CALM, "the headers are far too large")
        return fields

    def _entry(self, index: int) -> Field:
        return STATIC[index - 1] if 0 < index <= len(STATIC) else self._table.get_by_index(index)

    def _literal(self, block: bytes, at: int, mask: int) -> tuple[Field, int]:
        index, at = _integer(block, at, mask)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _string(block, at)
        value, at = _string(block, at)
        return (name, value), at

    def _resize(self, block: bytes, at: int, fields: list[Field]) -> int:
        if fields:
            raise HPACKError("the size of the table changes after a field")
        size, at = _integer(block, at, 0x1F)
        if size > TABLE:
            raise HPACKError("a table larger than allowed")
        self._table.maxsize = size
        self.changed = True
        return at


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
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
    raise HPACKError("a number that does not end")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    packed = block[at] & 0x80
    length, at = _integer(block, at, 0x7F)
    text = block[at : at + length]
    if len(text) < length:
        raise HPACKError("a string that does not end")
    return decode_huffman(text) if packed else text, at + length
