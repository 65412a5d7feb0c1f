"""The table of counts that goes with a file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from count_table import CountTable


@pytest.fixture(scope="module")
def count_table(request: pytest.FixtureRequest) -> Iterator[CountTable]:
    """The numbers in NAME.json beside test_NAME.py."""
    table = CountTable(request.path.with_name(f"{Path(request.path).stem.removeprefix('test_')}.json"))
    yield table
    table.close()
