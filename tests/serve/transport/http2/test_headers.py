"""Heads of requests: what RFC 9113 calls malformed is refused, and blocks are remembered only while they may be."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder
from rows import rows

from ox.serve.transport.http2.frames import PROTOCOL_ERROR, Http2StreamError
from ox.serve.transport.http2.headers import (
    MAX_CACHED_BLOCKS,
    HeaderBlock,
    HeaderBlockDecoder,
    check_trailers,
    read_head,
)

GET = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"me")]


def test_head() -> None:
    head = read_head([*GET, (b"a", b"1"), (b"cookie", b"x"), (b"a", b""), (b"cookie", b"y"), (b"te", b"trailers")])
    assert (head.method, head.target, head.length) == (b"GET", b"/a", None)
    assert head.headers == {b"host": b"me", b"a": b"1, ", b"cookie": b"x; y", b"te": b"trailers"}
    assert read_head([*GET, (b"content-length", b"12"), (b"host", b"me")]).length == 12
    assert read_head([(b":method", b"OPTIONS"), (b":scheme", b"https"), (b":path", b"*")]).target == b"*"
    assert read_head([(b":method", b"CONNECT"), (b":authority", b"me:1")]).target == b"me:1"


@rows(
    "fields",
    [
        GET[1:],
        [GET[0], *GET[2:]],
        [*GET[:2], GET[3]],
        [*GET[:2], (b":path", b"")],
        [*GET[:2], (b":path", b"a")],
        [*GET[:2], (b":path", b"*")],
        [*GET, GET[0]],
        [*GET, (b":status", b"200")],
        [*GET, (b":protocol", b"websocket")],
        [*GET[:3], (b"a", b"b"), GET[3]],
        [*GET, (b"A", b"b")],
        [*GET, (b"", b"b")],
        [*GET, (b"a b", b"")],
        [*GET, (b"a\0", b"")],
        [*GET, (b"a:", b"")],
        [*GET, (b"a", b"b\r\nc: d")],
        [*GET, (b"a", b"\0")],
        [*GET, (b"a", b" b")],
        [*GET, (b"a", b"b\t")],
        [*GET[:2], (b":path", b"/\n")],
        [*GET[:2], (b":path", b"/ a")],
        [*GET[:2], (b":path", b"/\xde")],
        [(b":method", b"G\xc4T"), *GET[1:]],
        [(b":method", b"G T"), *GET[1:]],
        [*GET[:3], (b":authority", b"")],
        [*GET, (b"connection", b"close")],
        [*GET, (b"keep-alive", b"1")],
        [*GET, (b"proxy-connection", b"close")],
        [*GET, (b"transfer-encoding", b"chunked")],
        [*GET, (b"upgrade", b"h2c")],
        [*GET, (b"te", b"gzip")],
        [*GET, (b"host", b"you")],
        [*GET, (b"content-length", b"1"), (b"content-length", b"1")],
        [*GET, (b"content-length", b"+1")],
        [*GET, (b"content-length", b"1" * 19)],
        [(b":method", b"CONNECT")],
        [(b":method", b"CONNECT"), *GET[1:]],
    ],
)
def test_malformed(fields: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Http2StreamError) as caught:
        read_head(fields)
    assert caught.value.code == PROTOCOL_ERROR


def test_trailers() -> None:
    check_trailers([(b"a", b"b")])
    for field in ((b":path", b"/"), (b"A", b""), (b"upgrade", b"x"), (b"a", b"\r")):
        with pytest.raises(Http2StreamError):
            check_trailers([field])


def test_blocks_are_remembered_until_the_table_changes() -> None:
    blocks, encoder = HeaderBlockDecoder(4096, 100), Encoder()
    first = encoder.encode(GET)
    again = encoder.encode(GET)
    blocks.decode_head(first)
    assert not blocks.cache
    head = blocks.decode_head(again)
    assert blocks.cache == {again: head}
    blocks.decode(encoder.encode([(b"new", b"entry")]))
    assert not blocks.cache
    shifted = encoder.encode(GET)
    assert shifted != again and blocks.decode_head(shifted).headers == head.headers
    # The very bytes of before now name other fields: nobody may remember what they once meant.
    with pytest.raises(Http2StreamError):
        blocks.decode_head(again)


def test_only_so_many_blocks_are_remembered_and_no_long_ones() -> None:
    blocks = HeaderBlockDecoder(1 << 16, 100)
    prefix = HeaderBlock(GET).block
    for number in range(3 * MAX_CACHED_BLOCKS):
        blocks.decode_head(prefix + HeaderBlock([(b"n", b"%d" % number)]).block)
        assert len(blocks.cache) <= MAX_CACHED_BLOCKS
    blocks.cache.clear()
    blocks.decode_head(prefix + HeaderBlock([(b"n", b"1" * 2000)]).block)
    assert not blocks.cache


def test_too_large_is_a_refusal_and_not_remembered() -> None:
    blocks = HeaderBlockDecoder(1000, 10)
    assert blocks.decode_head(HeaderBlock(GET).block).error is None
    for more in ([(b"a", b"b")] * 7, [(b"a", b"b" * 900)]):
        error = blocks.decode_head(HeaderBlock([*GET, *more]).block).error
        assert error is not None and error.status == 431
    assert len(blocks.cache) == 1


def test_answers_use_no_table() -> None:
    decoder = Decoder(100_000)
    fields = [(":status", "200"), ("content-type", "a"), ("grpc-status", "0"), ("x", "y" * 300), (":status", "418")]
    block = HeaderBlock([(name.encode(), value.encode()) for name, value in fields])
    for _ in range(2):
        assert list(decoder.decode(block.block)) == fields
    assert decoder.header_table._current_size == 0
    assert HeaderBlock([(b":status", b"404")]).block == b"\x8d"
    assert list(decoder.decode(block.with_table_update(b"\x20").block)) == fields and decoder.header_table_size == 0
