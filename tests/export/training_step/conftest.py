"""What the tests of training steps share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def objects_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`save_step` asks whether any object is frozen. tests/conftest.py has frozen a million: each count takes 70 ms."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
