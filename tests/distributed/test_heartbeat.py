"""How often a rank says that it runs."""

from __future__ import annotations

import socket

import pytest
from manual_clock import ManualClock
from rows import rows

from ox.distributed import frames, heartbeat


@rows("limit", [0.6, 60.0], ids=["short", "long"])
def test_a_rank_is_heard_six_times_within_the_limit(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "heartbeat_timeout", lambda: limit)
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT", raising=False)  # which only TCP has
    clock, (near, far) = ManualClock(), socket.socketpair()
    with near, far:
        beats = heartbeat.Heartbeat(near, clock)
        for _ in range(6):
            clock.until_waiting()
            clock.advance(limit / 6)
        clock.until_waiting()
        assert far.recv(1 << 16).count(b"operation") == 1 + 6
    clock.advance(limit)
    beats._thread.join(60)
    assert not beats._thread.is_alive()  # the connection is closed
