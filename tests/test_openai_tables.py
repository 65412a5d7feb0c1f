"""The tables of docs/openai.md are those that the script generates."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import openai_tables


def test_the_page_is_current(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert openai_tables.main(["--check"]) == 0, "run python scripts/openai_tables.py"
    page = openai_tables.PAGE.read_text()
    old = tmp_path / "openai.md"
    monkeypatch.setattr(openai_tables, "PAGE", old)
    old.write_text(page.replace("| `seed` |", "| `sead` |"))
    assert openai_tables.main(["--check"]) == 1 and openai_tables.main([]) == 0
    assert old.read_text() == page
