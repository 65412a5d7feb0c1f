"""Clients that are slow while runs wait for the memory that their answers hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from manual_clock import ManualClock

from ox.serve.response_memory import LARGE
from ox.serve.transport.http2 import frames as f

SWEEP_S = 0.1  # between two looks, with these limits


def press(site: Any, on: bool = True) -> None:
    """As if runs waited."""
    site.do(lambda: setattr(site.listener_state.response_memory, "waiting_since", 1.0 if on else None))


def test_a_stream_of_which_too_little_is_taken_ends(serve: Any, limits: Any, connect: Any) -> None:
    """The others of its connection go on."""
    clock = ManualClock()
    with serve(replace(limits, write_s=4), clock=clock) as site, connect(site.port, {f.INITIAL_WINDOW_SIZE: 5}) as wire:
        wire.send(wire.head(1, f"/bytes/{4 * LARGE}"), wire.head(3, "/hold"))
        wire.until(f.DATA, 1)
        press(site)
        for _ in range(6):  # looks; 0.6 of the 4 s that it has without the pressure
            site.passes(SWEEP_S)
        assert wire.reset_of(1) == f.CANCEL
        press(site, False)
        assert site.do(lambda: site.listener_state.slow_clients) == 1
        wire.send(wire.head(5, "/bytes/4"))
        assert wire.answer(5)[2] == b"xxxx"


def test_a_stream_that_is_taken_at_the_pace_that_is_asked_goes_on(serve: Any, limits: Any, connect: Any) -> None:
    size, got, clock = 4 * LARGE, 0, ManualClock()
    with serve(replace(limits, write_s=4), clock=clock) as site, connect(site.port, {f.INITIAL_WINDOW_SIZE: 0}) as wire:
        wire.send(f.window_update(0, size), wire.head(1, f"/bytes/{size}"))
        wire.until(f.HEADERS, 1)
        press(site)
        for _ in range(20):  # all of it in 2 s; it has 4
            wire.send(f.window_update(1, size // 20 + 1))
            site.passes(SWEEP_S, wire)
        while got < size:
            got += len(wire.until(f.DATA, 1).payload)
        assert site.do(lambda: site.listener_state.slow_clients) == 0
        press(site, False)
