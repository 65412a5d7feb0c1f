"""Budgets: so many at once, and so many a second after that."""

from __future__ import annotations

import pytest

from ox.serve.transport.http2 import abuse_limits
from ox.serve.transport.http2.frames import ENHANCE_YOUR_CALM, Http2ConnectionError


def test_abuse_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(abuse_limits, "monotonic", lambda: now)
    pings = abuse_limits.AbuseLimit("pings", 10, 2.0)

    def spend(times: int) -> None:
        for _ in range(times):
            pings.consume()
        with pytest.raises(Http2ConnectionError, match="too many pings") as caught:
            pings.consume()
        assert caught.value.code == ENHANCE_YOUR_CALM

    spend(10)
    now += 3
    spend(6)
    now += 1000
    spend(10)
