"""Protobuf by hand, held against the real library."""

from __future__ import annotations

import struct

import pytest
from rows import rows

from ox.bench.protobuf import fields, integers, packed
from ox.protobuf import field, varint

PRIMES = [0, 1, 127, 128, 300, 2**31, 2**63 - 1, -1, -(2**63)]


@rows("number", PRIMES)
def test_integers(number: int) -> None:
    assert integers([varint(number)]) == [number]
    assert integers([next(fields(field(3, number)))[1]]) == [number]


def test_what_the_real_library_writes() -> None:
    from google.protobuf.struct_pb2 import Struct, Value

    message = Struct(fields={"a": Value(string_value="b" * 200)}).SerializeToString()
    ((number, entry),) = fields(message)
    assert isinstance(entry, bytes) and number == 1
    (_, key), (_, value) = fields(entry)
    assert key == b"a" and isinstance(value, bytes) and dict(fields(value)) == {3: b"b" * 200}
    mine = field(1, field(1, "a") + field(2, field(3, "b" * 200)))
    assert mine == message
    (number,) = fields(Value(number_value=1.5).SerializeToString())
    assert number == (2, struct.pack("<d", 1.5))
    assert list(fields(b"\x0d\x01\x02\x03\x04\x10\x05")) == [(1, b"\x01\x02\x03\x04"), (2, 5)]  # a fixed32 and an int
    assert Value.FromString(field(4, 1)).bool_value and list(fields(packed(3, (1, 300)))) == [(3, b"\x01\xac\x02")]


@rows("message", [b"\x80", b"\x0a\x05abc", b"\x0b", b"\xff" * 11, b"\x0d\0\0", b"\x09\0"])
def test_what_is_no_message(message: bytes) -> None:
    with pytest.raises(ValueError):
        list(fields(message))
