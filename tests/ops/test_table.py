"""The tables in docs/operators.md say what the definitions and the generated tests say."""

from __future__ import annotations

import pytest
from table import PAGE, VERSIONS, written


def test_the_tables_are_current() -> None:
    page = PAGE.read_text()
    if VERSIONS not in page:
        pytest.skip(f"the tables were made with other versions than {VERSIONS}")
    assert page == written(page), "python tests/ops/table.py"
