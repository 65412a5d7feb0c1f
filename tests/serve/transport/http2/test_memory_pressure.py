"""Clients that are slow while runs wait for the memory that their answers hold."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ox.serve.response_memory import LARGE
from ox.serve.transport.http2 import frames as f


def press(site: Any, on: bool = True) -> None:
    """As if runs waited."""
    site.do(lambda: setattr(site.listener_state.response_memory, "waiting_since", 1.0 if on else None))


def test_a_stream_of_which_too_little_is_taken_ends(serve: Any, limits: Any, connect: Any) -> None:
    """The others of its connection go on."""
    with serve(replace(limits, write_s=4)) as site, connect(site.port, {f.INITIAL_WINDOW_SIZE: 5}) as wire:
        wire.send(wire.head(1, f"/bytes/{4 * LARGE}"), wire.head(3, "/hold"))
        wire.until(f.DATA, 1)
        press(site)
        assert wire.reset_of(1) == f.CANCEL
        press(site, False)
        assert site.do(lambda: site.listener_state.slow_clients) == 1
        wire.send(wire.head(5, "/bytes/4"))
        assert wire.answer(5)[2] == b"xxxx"


def test_a_stream_that_is_taken_at_the_pace_that_is_asked_goes_on(serve: Any, limits: Any, connect: Any) -> None:
    size, got = 4 * LARGE, 0
    with serve(replace(limits, write_s=4)) as site, connect(site.port, {f.INITIAL_WINDOW_SIZE: 0}) as wire:
        wire.send(f.window_update(0, size), wire.head(1, f"/bytes/{size}"))
        wire.until(f.HEADERS, 1)
        press(site)
        for _ in range(20):  # all of it in 2 s; it has 4
            wire.send(f.window_update(1, size // 20 + 1))
            time.sleep(0.1)
        while got < size:
            got += len(wire.until(f.DATA, 1).payload)
        assert site.do(lambda: site.listener_state.slow_clients) == 0
        press(site, False)
