"""What one client can make a server do for nothing: each ends that client's connection, and nobody else notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hpack import Encoder

from ox.serve.transport.http2 import frames as f


@pytest.fixture(autouse=True)
def others_are_served(site: Any, connect: Any) -> Iterator[None]:
    yield
    with connect(site.port) as wire:
        wire.send(wire.head(1))
        assert wire.answer(1)[0] == 200
    assert site.do(lambda: site.listener_state.buffered) == 0


def flood(wire: Any, pieces: Iterator[bytes]) -> int:
    """Sends until the server ends the connection, and gives its code."""
    wire.socket.settimeout(120)
    try:
        for piece in pieces:
            wire.send(piece)
    except OSError:
        pass
    return int(wire.goaway())


def resets(wire: Any) -> Iterator[bytes]:
    for n in range(5000):
        yield wire.head(2 * n + 1, "/hold") + f.rst_stream(2 * n + 1, f.CANCEL)


def made_resets(wire: Any) -> Iterator[bytes]:
    """The server is brought to reset its streams itself."""
    for n in range(5000):
        yield wire.head(2 * n + 1, "/hold") + f.window_update(2 * n + 1, 0)


def malformed(wire: Any) -> Iterator[bytes]:
    for n in range(5000):
        yield wire.fields(2 * n + 1, [(":method", "GET")])


def refused(wire: Any) -> Iterator[bytes]:
    for n in range(5000):
        yield wire.head(2 * n + 1, "/hold")


def repeated(frame: bytes, before: Callable[[Any], bytes] = lambda wire: b"") -> Callable[[Any], Iterator[bytes]]:
    def frames(wire: Any) -> Iterator[bytes]:
        yield before(wire)
        for _ in range(200):
            yield frame * 50

    return frames


def open_stream(wire: Any) -> bytes:
    return bytes(wire.head(1, "/hold", end=False))


def cut_stream(wire: Any) -> bytes:
    return bytes(wire.fields(1, [(":method", "GET")], end=False))


def continuations(wire: Any) -> Iterator[bytes]:
    yield f.frame(f.HEADERS, 0, 1, b"\x82")
    for _ in range(5000):
        yield f.frame(f.CONTINUATION, 0, 1, b"\x00\x01a\x01b" * 20)


def empty_continuations(wire: Any) -> Iterator[bytes]:
    yield f.frame(f.HEADERS, 0, 1, b"\x82")
    for _ in range(5000):
        yield f.frame(f.CONTINUATION, 0, 1, b"")


def table_bomb(wire: Any) -> Iterator[bytes]:
    """A field of nearly 4 KB in the table, then a thousand times one byte that stands for it."""
    block = wire.encoder.encode([(":method", "GET"), ("x-bomb", "b" * 3900)], huffman=False)
    yield f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 1, block)
    yield f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 3, b"\xbe" * 1000)


def many_fields(wire: Any) -> Iterator[bytes]:
    yield f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 1, b"\x82\x86\x84" + b"\x90" * 4000)


def huge_head(wire: Any) -> Iterator[bytes]:
    block = Encoder().encode([("x-a", "a" * 16_000)], huffman=False)
    yield f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 1, block)


@pytest.mark.parametrize(
    "attack",
    [
        resets,
        made_resets,
        malformed,
        refused,
        continuations,
        empty_continuations,
        table_bomb,
        many_fields,
        huge_head,
        pytest.param(repeated(f.frame(f.PING, f.ACK, 0, bytes(8))), id="ping-acks"),
        pytest.param(repeated(f.frame(f.SETTINGS, f.ACK, 0, b"")), id="settings-acks"),
        pytest.param(repeated(f.frame(f.PRIORITY, 0, 1, bytes(5))), id="priorities"),
        pytest.param(repeated(f.frame(0x77, 0, 1, b"")), id="unknown-frames"),
        pytest.param(repeated(f.frame(f.DATA, 0, 1, b""), open_stream), id="empty-data"),
        pytest.param(repeated(f.frame(f.DATA, f.PADDED, 1, b"\x01\0"), open_stream), id="padding-alone"),
        pytest.param(repeated(f.frame(f.DATA, 0, 1, b"1"), cut_stream), id="data-after-the-end"),
        pytest.param(repeated(f.rst_stream(1, f.CANCEL), open_stream), id="reset-again"),
    ],
)
def test_flood(wire: Any, attack: Callable[[Any], Iterator[bytes]]) -> None:
    assert flood(wire, attack(wire)) == f.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("frame", [f.frame(f.PING, 0, 0, bytes(8)), f.settings({f.INITIAL_WINDOW_SIZE: 1})])
def test_flood_of_what_is_answered(wire: Any, frame: bytes) -> None:
    """The client may be stopped by its own full socket before it has spent all."""
    wire.socket.settimeout(120)
    try:
        for _ in range(2000):
            wire.send(frame * 50)
    except OSError:
        pass
    assert wire.closed()


def test_abandoned_work_is_dropped(site: Any, wire: Any) -> None:
    before, held = site.abandoned, len(site.held)
    flood(wire, resets(wire))
    begun = len(site.held) - held
    assert begun <= 1500 and site.abandoned - before == begun
    site.held.clear()
