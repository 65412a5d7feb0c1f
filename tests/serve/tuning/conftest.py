"""Loads that measure, which other tests of the server go without."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def unmeasured() -> None:
    """Not here."""
