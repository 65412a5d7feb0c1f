"""Flow control, both ways."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from manual_clock import ManualClock
from waiting import wait_until

from ox.serve.transport.http.sender import CHUNK
from ox.serve.transport.http2 import HttpStream
from ox.serve.transport.http2 import frames as f

CHECK_S = 8.0  # a connection looks at its times every 7.5 s


def test_answers_keep_to_the_windows(wire: Any) -> None:
    wire.send(wire.head(1, "/bytes/100000"))
    got = b""
    while len(got) < 65_535:
        frame = wire.until(f.DATA, 1)
        assert len(frame.payload) <= f.DEFAULT_FRAME_SIZE
        got += frame.payload
    assert len(got) == 65_535
    wire.alive()  # and nothing more comes
    wire.send(f.window_update(1, 10))
    wire.alive()
    wire.send(f.window_update(0, 7))
    assert len(wire.until(f.DATA, 1).payload) == 7
    wire.send(f.window_update(0, 1 << 20), f.window_update(1, 1 << 20))
    while not frame.flags & f.END_STREAM:
        frame = wire.until(f.DATA, 1)
        got += frame.payload
    assert len(got) == 100_000 - 7


def test_frames_as_large_as_the_client_allows(site: Any, connect: Any) -> None:
    with connect(site.port, {f.MAX_FRAME_SIZE: 40_000, f.INITIAL_WINDOW_SIZE: 1 << 20}) as wire:
        wire.send(f.window_update(0, 1 << 20), wire.head(1, "/bytes/90000"))
        sizes = [len(wire.until(f.DATA, 1).payload) for _ in range(3)]
        assert sizes == [40_000, 40_000, 10_000]


def test_small_answers_keep_to_the_window_of_the_connection(site: Any, connect: Any) -> None:
    with connect(site.port, {f.INITIAL_WINDOW_SIZE: 1 << 20}) as wire:
        wire.send(*(wire.head(stream, "/bytes/16000") for stream in (1, 3, 5, 7, 9)))
        sizes = [len(wire.until(f.DATA).payload) for _ in range(5)]
        assert sizes == [16_000, 16_000, 16_000, 16_000, 1535]
        wire.alive()
        wire.send(f.window_update(0, 100_000))
        assert wire.until(f.DATA) == (f.DATA, f.END_STREAM, 9, b"x" * 14_465)


def test_a_window_that_opens_later(site: Any, connect: Any) -> None:
    with connect(site.port, {f.INITIAL_WINDOW_SIZE: 0}) as wire:
        wire.send(wire.head(1, "/bytes/5"), wire.head(3, "/bytes/5"))
        wire.until(f.HEADERS, 3)
        wire.alive()
        wire.send(f.settings({f.INITIAL_WINDOW_SIZE: 3}))
        assert (wire.until(f.DATA, 1).payload, wire.until(f.DATA, 3).payload) == (b"xxx", b"xxx")
        wire.send(f.window_update(3, 2))
        assert wire.until(f.DATA).stream == 3
        wire.send(f.window_update(1, 100))
        assert wire.until(f.DATA) == (f.DATA, f.END_STREAM, 1, b"xx")


def test_a_window_that_becomes_negative(site: Any, connect: Any) -> None:
    with connect(site.port, {f.INITIAL_WINDOW_SIZE: 10}) as wire:
        wire.send(wire.head(1, "/bytes/20"))
        assert len(wire.until(f.DATA, 1).payload) == 10
        wire.send(f.settings({f.INITIAL_WINDOW_SIZE: 4}))  # -6 are left
        wire.alive()
        wire.send(f.window_update(1, 6))
        wire.alive()
        wire.send(f.window_update(1, 1))
        assert len(wire.until(f.DATA, 1).payload) == 1
        wire.send(f.settings({f.INITIAL_WINDOW_SIZE: 100}))
        assert wire.until(f.DATA, 1) == (f.DATA, f.END_STREAM, 1, b"x" * 9)


def test_new_settings_may_not_make_a_window_too_large(wire: Any) -> None:
    wire.send(
        wire.head(1, "/hold"), f.window_update(1, f.MAX_INT31 - 65_535), f.settings({f.INITIAL_WINDOW_SIZE: 65_536})
    )
    assert wire.goaway() == f.FLOW_CONTROL_ERROR


def test_streams_take_turns(site: Any, connect: Any) -> None:
    with connect(site.port, {f.INITIAL_WINDOW_SIZE: 1 << 20}) as wire:
        wire.send(wire.head(1, "/bytes/60000"), wire.head(3, "/bytes/300000"), wire.head(5, "/bytes/300000"))
        for stream in (1, 3, 5):
            wire.until(f.HEADERS, stream)
        wire.send(f.window_update(0, 1 << 20))
        order = [wire.until(f.DATA).stream for _ in range(9)]
        assert {3, 5} <= set(order) and all(a != b for a, b in pairwise(order[2:]))


def test_a_client_that_takes_nothing_loses_its_stream(timed: Any, connect: Any) -> None:
    with connect(timed.port, {f.INITIAL_WINDOW_SIZE: 5}) as wire:
        wire.send(wire.head(1, "/bytes/100"))
        timed.passes(timed.limits.write_s + CHECK_S, wire)
        assert wire.reset_of(1) == f.CANCEL
        assert timed.do(lambda: timed.listener_state.unread) == 0
        wire.send(wire.head(3, "/bytes/4"))
        assert wire.answer(3)[2] == b"xxxx"


def test_what_waits_is_bounded(site: Any, connect: Any) -> None:
    with connect(site.port, {f.INITIAL_WINDOW_SIZE: 0}) as wire:
        for stream in range(1, 13, 2):
            wire.send(wire.head(stream, "/bytes/1000000"))
        assert wire.reset_of(11) == f.REFUSED_STREAM  # 5 MB wait, more than one answer may have
        assert 4_000_000 < site.do(lambda: site.listener_state.unread) <= 5_000_000
        assert site.do(lambda: site.listener_state.buffered) == 0
    wait_until(lambda: not site.do(lambda: site.listener_state.unread))


def test_a_client_that_does_not_read(timed: Any, connect: Any) -> None:
    """Its socket fills, so it is not read either, and is dropped at last; what waits for it is bounded."""
    with connect(timed.port, {f.INITIAL_WINDOW_SIZE: f.MAX_INT31}) as wire:
        wire.send(f.window_update(0, f.MAX_INT31 - 65_535))
        for stream in range(1, 2001, 2):
            wire.send(wire.head(stream, "/bytes/100000"))
            assert timed.do(lambda: timed.listener_state.unread) < 5_500_000
        connections = timed.listener_state.connections
        wait_until(lambda: timed.do(lambda: any(connection.sender.paused for connection in connections)))
        timed.passes(timed.limits.write_s + CHECK_S)
        wait_until(lambda: not timed.do(lambda: len(connections)))
    assert timed.do(lambda: timed.listener_state.unread) == 0


def test_unread_answers_are_bounded_together(serve: Any, limits: Any, connect: Any) -> None:
    """Whoever holds the most is dropped; others neither are refused nor notice."""
    with serve(replace(limits, unread=2_500_000), clock=ManualClock()) as site, ExitStack() as stack:
        for size in (900_000, 1_000_000, 800_000):
            wire = stack.enter_context(connect(site.port, {f.INITIAL_WINDOW_SIZE: 0}))
            wire.send(wire.head(1, f"/bytes/{size}"))
            wire.until(f.HEADERS, 1)
        wait_until(lambda: site.do(lambda: len(site.listener_state.connections)) <= 2)
        assert site.do(lambda: site.listener_state.unread) == 1_700_000
        with connect(site.port) as other:
            other.send(other.head(1, "/bytes/1000"))
            assert len(other.answer(1)[2]) == 1000
    assert site.listener_state.unread == 0


def test_large_answers_that_wait_for_their_clients_abort_nobody(serve: Any, limits: Any, connect: Any) -> None:
    """What the sockets do not take of them counts as response memory, and is not more than a part of each."""
    settings = {f.INITIAL_WINDOW_SIZE: f.MAX_INT31, f.MAX_FRAME_SIZE: (1 << 24) - 1}
    with serve(replace(limits, unread=4_000_000), clock=ManualClock()) as site, ExitStack() as stack:
        wires = [stack.enter_context(connect(site.port, settings)) for _ in range(8)]
        for wire in wires:
            wire.send(f.window_update(0, f.MAX_INT31 - 65_535))
            wire.send(wire.head(1, "/large/16000000"))
        state = site.listener_state
        wait_until(lambda: site.do(lambda: sum(connection.sender.paused for connection in state.connections)) == 8)
        assert site.do(lambda: state.unread) == 0
        assert 0 < site.do(lambda: state.response_memory.used) <= 8 * (CHUNK + (64 << 10))
        for wire in wires:
            assert len(wire.answer(1)[2]) == 16_000_000
        wait_until(lambda: not site.do(lambda: state.response_memory.used))
        assert state.slow_clients == 0


def test_a_byte_now_and_then_is_not_reading(timed: Any, connect: Any) -> None:
    with connect(timed.port, {f.INITIAL_WINDOW_SIZE: 5}) as wire:
        wire.send(wire.head(1, "/bytes/100"))
        wire.until(f.DATA, 1)
        for _ in range(95):  # with which it would have the whole answer
            if timed.do(lambda: timed.listener_state.unread) == 0:
                break
            wire.send(f.window_update(1, 1))
            timed.passes(1, wire)
        assert wire.reset_of(1) == f.CANCEL


def test_a_client_that_does_not_read_is_not_read(serve: Any, limits: Any, connect: Any) -> None:
    with serve(limits, clock=ManualClock()) as site, connect(site.port, {f.INITIAL_WINDOW_SIZE: f.MAX_INT31}) as wire:
        wire.send(f.window_update(0, f.MAX_INT31 - 65_535))

        def reading() -> bool:
            return all(connection.transport.is_reading() for connection in site.listener_state.connections)

        stream = 1
        wire.send(wire.head(stream, "/bytes/4000000"))
        while site.do(reading):  # its socket is not yet full
            stream += 2
            wire.send(wire.head(stream, "/bytes/4000000"))
        wire.send(wire.head(stream + 2, "/bytes/5"))
        got = dict.fromkeys(range(1, stream + 3, 2), 0)
        while set(got.values()) - {4_000_000, 5}:
            frame = wire.until(f.DATA)
            got[frame.stream] += len(frame.payload)
        wire.alive()


# ---- the other way


def test_a_connection_gets_its_window_back(serve: Any, limits: Any, connect: Any) -> None:
    with serve(replace(limits, body=1 << 20)) as site, connect(site.port) as wire:
        left = 65_535 + int.from_bytes(wire.until(f.WINDOW_UPDATE, 0).payload, "big")
        assert left == 16 << 20
        for stream in range(1, 41, 2):
            pieces = f.frame(f.DATA, 0, stream, bytes(f.DEFAULT_FRAME_SIZE)) * 62 + f.frame(
                f.DATA, f.END_STREAM, stream, b"1"
            )
            wire.send(wire.head(stream, end=False), pieces)
            left -= 62 * f.DEFAULT_FRAME_SIZE + 1
            while (frame := wire.frame()).kind != f.HEADERS:
                if frame.kind == f.WINDOW_UPDATE and frame.stream == 0:
                    left += int.from_bytes(frame.payload, "big")
            assert 8 << 20 <= left <= 16 << 20


def test_padding_counts(serve: Any, limits: Any, connect: Any) -> None:
    with serve(replace(limits, body=16 << 20)) as site, connect(site.port) as wire:
        wire.until(f.WINDOW_UPDATE, 0)
        wire.send(wire.head(1, "/hold", end=False))
        frame = f.frame(f.DATA, f.PADDED, 1, b"\xff" + bytes(45 + 255))
        for _ in range(2000):
            wire.send(frame)
        more = int.from_bytes(wire.until(f.WINDOW_UPDATE, 1).payload, "big")
        assert 1 << 19 <= more < (1 << 19) + 1000


@pytest.mark.parametrize("flags", [0, f.END_STREAM])
def test_a_client_that_overruns_its_window(serve: Any, limits: Any, connect: Any, monkeypatch: Any, flags: int) -> None:
    monkeypatch.setattr(HttpStream, "wants_data", False)  # so that it gets nothing back
    with serve(replace(limits, body=16 << 20)) as site, connect(site.port) as wire:
        wire.send(wire.head(1, "/hold", end=False))
        for _ in range(64):
            wire.send(f.frame(f.DATA, 0, 1, bytes(f.DEFAULT_FRAME_SIZE)))
        wire.alive()
        wire.send(f.frame(f.DATA, flags, 1, b"1"))
        assert wire.reset_of(1) == f.FLOW_CONTROL_ERROR
