"""Budgets: so many at once, and so many a second after that."""

from __future__ import annotations

import pytest

from ox.serve.http2 import budget
from ox.serve.http2.frames import ENHANCE_YOUR_CALM, ConnectionFault


def test_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(budget, "monotonic", lambda: now)
    pings = budget.Budget("pings", 10, 2.0)

    def spend(times: int) -> None:
        for _ in range(times):
            pings.spend()
        with pytest.raises(ConnectionFault, match="too many pings") as caught:
            pings.spend()
        assert caught.value.code == ENHANCE_YOUR_CALM

    spend(10)
    now += 3
    spend(6)
    now += 1000
    spend(10)
