"""Frames that begin and carry requests: states of streams, bodies, header blocks in pieces, and every wrong order."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from ox.serve.transport.http2 import frames as f
from ox.serve.transport.http2.connection import Connection
from ox.serve.transport.http2.control import ControlFrames, Timeouts
from ox.serve.transport.http2.sender import Sender

FIELDS = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "test")]


def test_requests_side_by_side(wire: Any) -> None:
    wire.send(*(wire.head(2 * n + 1, f"/n/{n}") for n in range(15)))
    for n in range(15):
        status, headers, body = wire.answer(2 * n + 1)
        assert (status, json.loads(body)["path"]) == (200, f"/n/{n}")
        assert headers["content-length"] == str(len(body))


def test_byte_by_byte(site: Any, connect: Any) -> None:
    with connect(site.port, greet=False) as wire:
        bytes_of_all = f.PREFACE + f.settings({}) + wire.head(1, end=False) + f.frame(f.DATA, f.END_STREAM, 1, b"12")
        for byte in bytes_of_all:
            wire.send(bytes([byte]))
        wire.until(f.SETTINGS)
        assert json.loads(wire.answer(1)[2])["size"] == 2


def test_body_in_pieces_with_padding(wire: Any) -> None:
    wire.send(wire.head(1, end=False, method="POST", headers=[("content-length", "6")]))
    wire.send(f.frame(f.DATA, 0, 1, b"12"), f.frame(f.DATA, f.PADDED, 1, b"\x0334\0\0\0"), f.frame(f.DATA, 0, 1, b"5"))
    wire.send(f.frame(f.DATA, f.PADDED | f.END_STREAM, 1, b"\x006"))
    assert json.loads(wire.answer(1)[2])["size"] == 6


def test_body_that_ends_with_trailers(wire: Any) -> None:
    wire.send(wire.head(1, end=False), f.frame(f.DATA, 0, 1, b"12"), wire.fields(1, [("checksum", "1")]))
    assert json.loads(wire.answer(1)[2])["size"] == 2


def test_padded_head_with_priority_in_pieces(wire: Any) -> None:
    block = wire.encoder.encode([*FIELDS, ("x-a", "b")])
    head = b"\x02" + b"\0\0\0\x03\x0f" + block[:5] + b"\0\0"
    wire.send(f.frame(f.HEADERS, f.END_STREAM | f.PADDED | f.PRIORITY_FLAG, 1, head))
    wire.send(f.frame(f.CONTINUATION, 0, 1, block[5:6]), f.frame(f.CONTINUATION, f.END_HEADERS, 1, block[6:]))
    assert json.loads(wire.answer(1)[2])["headers"]["x-a"] == "b"
    wire.alive()


def test_heads_from_a_table_that_changes(wire: Any) -> None:
    for n in range(30):
        stream = 2 * n + 1
        wire.send(wire.head(stream, f"/{n % 3}", headers=[("x-n", str(n // 5))]))
        document = json.loads(wire.answer(stream)[2])
        assert document["path"] == f"/{n % 3}" and document["headers"]["x-n"] == str(n // 5)


PRELUDE: dict[str, Any] = {
    "idle": lambda wire: b"",
    "open": lambda wire: wire.head(1, "/hold", end=False),
    "half-closed": lambda wire: wire.head(1, "/hold"),
    "reset": lambda wire: wire.head(1, "/hold", end=False) + f.rst_stream(1, f.CANCEL),
    "passed over": lambda wire: wire.head(3, "/hold"),
}
DATA = f.frame(f.DATA, f.END_STREAM, 1, b"1")


@pytest.mark.parametrize(
    ("state", "frames", "code"),
    [
        ("idle", lambda w: DATA, f.PROTOCOL_ERROR),
        ("idle", lambda w: f.rst_stream(1, f.CANCEL), f.PROTOCOL_ERROR),
        ("idle", lambda w: f.window_update(1, 1), f.PROTOCOL_ERROR),
        ("idle", lambda w: f.frame(f.CONTINUATION, f.END_HEADERS, 1, b""), f.PROTOCOL_ERROR),
        ("idle", lambda w: w.head(2), f.PROTOCOL_ERROR),
        ("idle", lambda w: w.head(0), f.PROTOCOL_ERROR),
        ("idle", lambda w: f.frame(f.DATA, 0, 0, b"1"), f.PROTOCOL_ERROR),
        ("idle", lambda w: f.frame(f.DATA, 0, 2, b"1"), f.PROTOCOL_ERROR),
        ("idle", lambda w: f.frame(f.PUSH_PROMISE, f.END_HEADERS, 1, b"\0\0\0\2"), f.PROTOCOL_ERROR),
        ("idle", lambda w: f.frame(f.HEADERS, f.END_HEADERS, 1, b"\x80"), f.COMPRESSION_ERROR),
        ("idle", lambda w: f.frame(f.HEADERS, f.END_HEADERS | f.PADDED, 1, b""), f.FRAME_SIZE_ERROR),
        ("idle", lambda w: f.frame(f.HEADERS, f.END_HEADERS | f.PADDED, 1, b"\x05\x82"), f.PROTOCOL_ERROR),
        ("idle", lambda w: f.frame(f.HEADERS, f.END_HEADERS | f.PRIORITY_FLAG, 1, b"\0\0\0"), f.FRAME_SIZE_ERROR),
        ("idle", lambda w: f.frame(f.HEADERS, 0x24, 1, b"\0\0\0\1\0\x82"), f.PROTOCOL_ERROR),
        ("idle", lambda w: f.frame(f.HEADERS, 0, 1, b"\x82") + f.frame(f.PING, 0, 0, bytes(8)), f.PROTOCOL_ERROR),
        ("idle", lambda w: f.frame(f.HEADERS, 0, 1, b"\x82") + f.frame(f.CONTINUATION, 4, 3, b""), f.PROTOCOL_ERROR),
        ("idle", lambda w: f.frame(f.DATA, 0, 1, bytes(16_385)), f.FRAME_SIZE_ERROR),
        ("open", lambda w: f.frame(f.DATA, f.PADDED, 1, b""), f.FRAME_SIZE_ERROR),
        ("open", lambda w: f.frame(f.DATA, f.PADDED, 1, b"\x01"), f.PROTOCOL_ERROR),
        ("reset", lambda w: DATA, f.STREAM_CLOSED),
        ("reset", lambda w: w.head(1), f.STREAM_CLOSED),
        ("passed over", lambda w: w.head(1), f.PROTOCOL_ERROR),
    ],
)
def test_wrong_for_the_connection(wire: Any, site: Any, state: str, frames: Any, code: int) -> None:
    wire.send(PRELUDE[state](wire), frames(wire))
    assert wire.goaway() == code
    assert site.do(lambda: site.listener_state.buffered) == 0


@pytest.mark.parametrize(
    ("state", "frames", "code"),
    [
        ("half-closed", lambda w: DATA, f.STREAM_CLOSED),
        ("half-closed", lambda w: w.fields(1, [("a", "b")]), f.STREAM_CLOSED),
        ("open", lambda w: w.fields(1, [("a", "b")], end=False), f.PROTOCOL_ERROR),
        ("open", lambda w: w.fields(1, [(":path", "/")]), f.PROTOCOL_ERROR),
        ("idle", lambda w: w.fields(1, [*FIELDS, ("Upper", "b")]), f.PROTOCOL_ERROR),
        ("idle", lambda w: w.fields(1, [*FIELDS, ("connection", "close")]), f.PROTOCOL_ERROR),
        ("idle", lambda w: w.fields(1, FIELDS[1:]), f.PROTOCOL_ERROR),
        ("idle", lambda w: w.head(1, headers=[("content-length", "1")]), f.PROTOCOL_ERROR),
        ("idle", lambda w: w.head(1, end=False, headers=[("content-length", "2")]) + DATA, f.PROTOCOL_ERROR),
        (
            "idle",
            lambda w: w.head(1, end=False, headers=[("content-length", "2")]) + f.frame(f.DATA, 0, 1, b"123"),
            f.PROTOCOL_ERROR,
        ),
        (
            "idle",
            lambda w: w.head(1, end=False, headers=[("content-length", "2")]) + w.fields(1, [("a", "b")]),
            f.PROTOCOL_ERROR,
        ),
    ],
)
def test_wrong_for_the_stream(wire: Any, site: Any, state: str, frames: Any, code: int) -> None:
    wire.send(PRELUDE[state](wire), frames(wire))
    assert wire.reset_of(1) == code
    wire.send(f.frame(f.DATA, 0, 1, b"late"), f.window_update(1, 1), wire.head(3, "/next"))
    assert wire.answer(3)[0] == 200
    assert site.do(lambda: site.listener_state.buffered) == 0


def test_a_reset_abandons_the_work(site: Any, wire: Any) -> None:
    before = site.abandoned
    wire.send(wire.head(1, "/hold"), wire.head(3, "/hold"), f.rst_stream(1, f.CANCEL))
    wire.alive()
    assert site.abandoned == before + 1
    first, second = site.held[-2:]
    site.do(lambda: first.reply(200, b"too late"))
    site.do(lambda: second.reply(200, b"fine"))
    assert wire.answer(3)[2] == b"fine"


def test_a_lost_connection_abandons_the_work(site: Any, connect: Any) -> None:
    before = site.abandoned
    with connect(site.port) as wire:
        wire.send(wire.head(1, "/hold"), wire.head(3, "/hold", end=False))
        wire.alive()
    while site.abandoned == before:
        site.do(lambda: None)
    assert site.abandoned == before + 1  # the other had not begun
    assert site.do(lambda: site.listener_state.buffered) == 0


def test_more_streams_than_allowed(site: Any, wire: Any) -> None:
    assert wire.settings[f.MAX_CONCURRENT_STREAMS] == 20
    wire.send(*(wire.head(2 * n + 1, "/hold") for n in range(21)))
    assert wire.reset_of(41) == f.REFUSED_STREAM
    site.do(lambda: site.held[-1].reply(200, b"done"))
    assert wire.answer(39)[2] == b"done"
    wire.send(wire.head(43, "/bytes/3"))
    assert wire.answer(43)[2] == b"xxx"


def test_large_heads_are_refused_and_the_connection_goes_on(wire: Any) -> None:
    wire.send(wire.head(1, headers=[("x-a", "a" * 5000)]))
    assert wire.answer(1)[0] == 431
    wire.send(wire.head(3, headers=[(f"x-{n}", "a") for n in range(40)]))
    assert wire.answer(3)[0] == 431
    wire.send(wire.head(5, "/" + "a" * 1000))
    assert wire.answer(5)[0] == 414
    wire.send(wire.head(7))
    assert wire.answer(7)[0] == 200


@pytest.mark.parametrize(
    "greeting", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\0" * 30]
)
def test_not_http2(site: Any, connect: Any, greeting: bytes) -> None:
    with connect(site.port, greet=False) as wire:
        wire.send(greeting)
        assert wire.goaway() == f.PROTOCOL_ERROR


@pytest.mark.parametrize("first", [f.frame(f.PING, 0, 0, bytes(8)), f.frame(f.SETTINGS, f.ACK, 0, b"")])
def test_settings_come_first(site: Any, connect: Any, first: bytes) -> None:
    with connect(site.port, greet=False) as wire:
        wire.send(f.PREFACE + first)
        assert wire.goaway() == f.PROTOCOL_ERROR


def test_upgrade_from_http1(serve: Any, limits: Any, connect: Any) -> None:
    with serve(limits, mixed=True) as site, connect(site.port) as wire:
        wire.send(wire.head(1, "/over"))
        assert json.loads(wire.answer(1)[2])["path"] == "/over"
        assert site.do(lambda: len(site.listener_state.connections)) == 1


def test_who_closes_one_half_has_gone(site: Any, wire: Any) -> None:
    before = site.abandoned
    wire.send(wire.head(1, "/hold"))
    wire.alive()
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.closed() and site.abandoned == before + 1


def test_a_connection_is_put_together_of_its_parts() -> None:
    """Each part is a class of its own: none is a base of another."""
    assert Connection.__bases__ == (asyncio.Protocol,)
    assert all(part.__bases__ == (object,) for part in (Sender, ControlFrames, Timeouts))
