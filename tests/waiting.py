"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(true: Callable[[], object], seconds: float = 120) -> None:
    """Returns when `true()` is. Raises AssertionError after so many seconds."""
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up, f"it did not come true in {seconds:g} seconds"
        time.sleep(0.005)
