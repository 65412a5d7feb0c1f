"""Settings, pings, deadlines, and how connections end."""

from __future__ import annotations

from typing import Any

import pytest

from ox.serve.transport.http2 import frames as f


def test_settings_and_their_acknowledgement(site: Any, connect: Any) -> None:
    with connect(site.port, greet=False) as wire:
        wire.send(f.PREFACE, f.settings({f.ENABLE_PUSH: 0, 0x99: 7}))
        ours = wire.frame()
        assert (ours.kind, ours.flags) == (f.SETTINGS, 0)
        values = dict(f.read_settings(ours.payload))
        assert (
            values[f.MAX_HEADER_LIST_SIZE] == 4096
            and values[f.MAX_CONCURRENT_STREAMS] == 20
            and values[f.INITIAL_WINDOW_SIZE] == 1 << 20
        )
        assert wire.until(f.SETTINGS) == (f.SETTINGS, f.ACK, 0, b"")


def test_ping(wire: Any) -> None:
    wire.send(f.frame(f.PING, 0, 0, b"abcdefgh"), f.frame(f.PING, f.ACK, 0, b"whatever"))
    assert wire.until(f.PING) == (f.PING, f.ACK, 0, b"abcdefgh")
    wire.alive()


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (f.frame(f.PING, 0, 0, bytes(7)), f.FRAME_SIZE_ERROR),
        (f.frame(f.PING, 0, 1, bytes(8)), f.PROTOCOL_ERROR),
        (f.frame(f.SETTINGS, 0, 0, bytes(5)), f.FRAME_SIZE_ERROR),
        (f.frame(f.SETTINGS, f.ACK, 0, bytes(6)), f.FRAME_SIZE_ERROR),
        (f.frame(f.SETTINGS, 0, 1, b""), f.PROTOCOL_ERROR),
        (f.settings({f.ENABLE_PUSH: 2}), f.PROTOCOL_ERROR),
        (f.settings({f.NO_RFC7540_PRIORITIES: 2}), f.PROTOCOL_ERROR),
        (f.settings({f.INITIAL_WINDOW_SIZE: 1 << 31}), f.FLOW_CONTROL_ERROR),
        (f.settings({f.MAX_FRAME_SIZE: 16_383}), f.PROTOCOL_ERROR),
        (f.settings({f.MAX_FRAME_SIZE: 1 << 24}), f.PROTOCOL_ERROR),
        (f.settings(dict.fromkeys(range(100, 170), 1)), f.ENHANCE_YOUR_CALM),
        (f.frame(f.GOAWAY, 0, 0, bytes(7)), f.FRAME_SIZE_ERROR),
        (f.frame(f.GOAWAY, 0, 1, bytes(8)), f.PROTOCOL_ERROR),
        (f.frame(f.RST_STREAM, 0, 1, bytes(3)), f.FRAME_SIZE_ERROR),
        (f.rst_stream(0, 0), f.PROTOCOL_ERROR),
        (f.frame(f.PRIORITY, 0, 0, bytes(5)), f.PROTOCOL_ERROR),
        (f.frame(f.WINDOW_UPDATE, 0, 0, bytes(3)), f.FRAME_SIZE_ERROR),
        (f.window_update(0, 0), f.PROTOCOL_ERROR),
        (f.window_update(0, f.MAX_INT31), f.FLOW_CONTROL_ERROR),
    ],
)
def test_wrong(wire: Any, frame: bytes, code: int) -> None:
    wire.send(frame)
    assert wire.goaway() == code


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (f.frame(f.PRIORITY, 0, 1, bytes(4)), f.FRAME_SIZE_ERROR),
        (f.frame(f.PRIORITY, 0, 1, b"\0\0\0\1\0"), f.PROTOCOL_ERROR),
        (f.window_update(1, 0), f.PROTOCOL_ERROR),
        (f.window_update(1, f.MAX_INT31), f.FLOW_CONTROL_ERROR),
    ],
)
def test_wrong_on_a_stream(wire: Any, frame: bytes, code: int) -> None:
    wire.send(wire.head(1, "/hold"), frame)
    assert wire.reset_of(1) == code
    wire.alive()


def test_what_is_ignored(wire: Any) -> None:
    wire.send(f.frame(f.PRIORITY, 0, 7, b"\0\0\0\1\0"), f.frame(0xBE, 0xFF, 9, b"grease"), f.settings({0xABAB: 1}))
    wire.send(wire.head(1))
    assert wire.answer(1)[0] == 200


def test_a_smaller_table_is_acknowledged_before_the_next_head(wire: Any) -> None:
    wire.send(f.settings({f.HEADER_TABLE_SIZE: 0}), wire.head(1), wire.head(3))
    assert wire.until(f.HEADERS, 1).payload[:2] == b"\x20\x88"
    assert wire.until(f.HEADERS, 3).payload[:1] == b"\x88"


# ---- deadlines


CHECK_S = 8.0  # a connection looks at its times every 7.5 s


def test_settings_that_are_never_acknowledged(timed: Any, connect: Any) -> None:
    with connect(timed.port, greet=False) as wire:
        wire.send(f.PREFACE, f.settings({}))
        timed.passes(timed.limits.request_s + CHECK_S, wire)
        assert wire.goaway() == f.SETTINGS_TIMEOUT


@pytest.mark.parametrize("start", [b"", f.PREFACE[:10], f.PREFACE])
def test_silence_from_the_start(timed: Any, connect: Any, start: bytes) -> None:
    with connect(timed.port, greet=False) as wire:
        wire.send(start)
        timed.passes(timed.limits.request_s + CHECK_S, wire)
        assert wire.goaway() in (f.SETTINGS_TIMEOUT, f.PROTOCOL_ERROR)


def test_idle(timed: Any, timed_wire: Any) -> None:
    timed.passes(timed.limits.idle_s + 2 * CHECK_S, timed_wire)
    assert timed_wire.goaway() == f.NO_ERROR


@pytest.mark.parametrize("half", [b"\0\0\x08\x06", f.frame(f.HEADERS, 0, 1, b"\x82")])
def test_half_a_frame_or_head(timed: Any, timed_wire: Any, half: bytes) -> None:
    timed_wire.send(half)
    timed.passes(timed.limits.request_s + CHECK_S, timed_wire)
    assert timed_wire.goaway() == f.PROTOCOL_ERROR


def test_half_a_body(timed: Any, timed_wire: Any) -> None:
    timed_wire.send(timed_wire.head(1, end=False, method="POST"), f.frame(f.DATA, 0, 1, b"half"))
    timed.passes(timed.limits.request_s + CHECK_S, timed_wire)
    status, _, body = timed_wire.answer(1)
    assert status == 408 and b"4 bytes" in body
    timed_wire.send(timed_wire.head(3))
    assert timed_wire.answer(3)[0] == 200


def test_dripping_bytes_do_not_extend_the_time_for_a_frame(timed: Any, connect: Any) -> None:
    with connect(timed.port) as wire:
        wire.send(f.frame(f.DATA, 0, 1, bytes(16_000))[:9])
        for _ in range(10):
            timed.passes(timed.limits.request_s / 10, wire)
            wire.send(b"1")
        timed.passes(CHECK_S, wire)
        assert wire.goaway() == f.PROTOCOL_ERROR


def test_who_waits_for_an_answer_is_asked_whether_it_is_there(timed: Any, timed_wire: Any) -> None:
    timed_wire.send(timed_wire.head(1, "/hold"))
    timed.passes(timed.limits.idle_s + 2 * CHECK_S, timed_wire)
    ping = timed_wire.until(f.PING)
    assert not ping.flags
    timed_wire.send(f.frame(f.PING, f.ACK, 0, ping.payload))
    timed.passes(timed.limits.idle_s + 2 * CHECK_S, timed_wire)
    timed_wire.until(f.PING)  # again, as the first was answered; this one is not
    before = timed.abandoned
    timed.passes(timed.limits.write_s + CHECK_S)
    assert timed_wire.closed() and timed.abandoned == before + 1


def test_too_many_connections(site: Any, connect: Any) -> None:
    wires = [connect(site.port) for _ in range(50)]
    try:
        with connect(site.port) as wire:
            assert wire.goaway() == f.ENHANCE_YOUR_CALM
    finally:
        for wire in wires:
            wire.socket.close()


# ---- draining


def test_drain(serve: Any, limits: Any, connect: Any) -> None:
    with serve(limits) as site, connect(site.port) as wire, connect(site.port) as idle:
        wire.send(wire.head(1, "/hold"))
        wire.alive()
        site.stop()
        first = wire.until(f.GOAWAY).payload
        assert int.from_bytes(first[:4], "big") == f.MAX_INT31 and int.from_bytes(first[4:8], "big") == f.NO_ERROR
        wire.send(wire.head(3, "/hold"))  # it was on its way
        last = wire.until(f.GOAWAY).payload
        assert int.from_bytes(last[:4], "big") == 3
        wire.send(wire.head(5))
        assert wire.reset_of(5) == f.REFUSED_STREAM
        assert idle.goaway() == f.NO_ERROR
        for exchange, stream in zip(list(site.held), (1, 3), strict=True):
            site.do(lambda exchange=exchange: exchange.reply(200, b"last"))
            assert wire.until(f.DATA, stream).payload == b"last"
        assert wire.closed()


def test_a_client_that_says_goodbye_gets_its_answers(site: Any, wire: Any) -> None:
    wire.send(wire.head(1, "/hold"), f.goaway(0, f.NO_ERROR, b"bye"))
    wire.alive()
    site.do(lambda: site.held[-1].reply(200, b"last"))
    assert wire.until(f.DATA, 1).payload == b"last"
    assert wire.closed()
