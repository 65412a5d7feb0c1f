"""Budgets: so many at once, and so many a second after that."""

from __future__ import annotations

import pytest
from manual_clock import ManualClock

from ox.serve.transport.http2.abuse_limits import AbuseLimit
from ox.serve.transport.http2.frames import ENHANCE_YOUR_CALM, Http2ConnectionError


def test_abuse_limits() -> None:
    clock = ManualClock()
    pings = AbuseLimit("pings", 10, 2.0, clock.now)

    def spend(times: int) -> None:
        for _ in range(times):
            pings.consume()
        with pytest.raises(Http2ConnectionError, match="too many pings") as caught:
            pings.consume()
        assert caught.value.code == ENHANCE_YOUR_CALM

    spend(10)
    clock.advance(3)
    spend(6)
    clock.advance(1000)
    spend(10)
