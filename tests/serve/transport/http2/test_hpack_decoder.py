"""HPACK: the same as the library's own decoder, on everything that it takes and on what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hpack import Decoder as Reference
from hpack import Encoder
from hpack.exceptions import HPACKError
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import rows

from ox.serve.transport.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, Http2ConnectionError
from ox.serve.transport.http2.hpack_decoder import HpackDecoder

names = st.sampled_from([b":path", b"accept", b"x-a", b"x-long-name-of-a-header"]) | st.binary(max_size=20)
lists = st.lists(st.tuples(names, st.binary(max_size=60), st.booleans()), max_size=12)


@settings(deadline=None)
@given(st.lists(lists, max_size=5), st.sampled_from([0, 60, 200, 4096]), st.booleans())
def test_what_was_encoded(blocks: list[list[Any]], size: int, huffman: bool) -> None:
    encoder, decoder = Encoder(), HpackDecoder(1 << 20, 1000)
    for number, fields in enumerate(blocks):
        if number == 1:
            encoder.header_table_size = size
        expected = [(name, value) for name, value, _ in fields]
        assert decoder.decode(encoder.encode(fields, huffman=huffman)) == expected


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=4))
def test_any_bytes(blocks: list[bytes]) -> None:
    ours, theirs = HpackDecoder(1 << 20, 10_000), Reference(1 << 20)
    for block in blocks:
        try:
            expected = [tuple(field) for field in theirs.decode(block, raw=True)]
        except HPACKError:
            with pytest.raises(Http2ConnectionError) as caught:
                ours.decode(block)
            assert caught.value.code == COMPRESSION_ERROR
            return
        assert ours.decode(block) == expected


@rows(
    "block",
    [
        b"\x80",  # index 0
        b"\xbe",  # the first of an empty table
        b"\xff\xff\xff\xff\xff\xff\x01",  # a number that does not end
        b"\x40\x03ab",  # a name that does not end
        b"\x00",
        b"\x82\x20",  # a new size after a field
        b"\x3f\xe2\x1f",  # 4097 bytes of table
        b"\x00\x81\xff\x00",  # Huffman's end of text
    ],
)
def test_damaged(block: bytes) -> None:
    with pytest.raises(Http2ConnectionError) as caught:
        HpackDecoder(4096, 100).decode(block)
    assert caught.value.code == COMPRESSION_ERROR


def test_it_says_whether_the_table_changed() -> None:
    decoder = HpackDecoder(4096, 100)
    for block, changed in ((b"\x82", False), (b"\x40\x01a\x01b", True), (b"\xbe", False), (b"\x20", True)):
        decoder.decode(block)
        assert decoder.table_changed is changed
    decoder.decode(b"\x00\x01a\x01b\x10\x01a\x01b")
    assert not decoder.table_changed


def test_bombs() -> None:
    decoder = HpackDecoder(50_000, 100)
    decoder.decode(b"\x40\x01a\x7f\xa1\x1e" + b"v" * 4000)
    for block in (b"\xbe" * 13, b"\x82" * 101):
        with pytest.raises(Http2ConnectionError) as caught:
            decoder.decode(block)
        assert caught.value.code == ENHANCE_YOUR_CALM
    assert len(decoder.decode(b"\xbe" * 12)) == 12 and len(decoder.decode(b"\x82" * 100)) == 100
