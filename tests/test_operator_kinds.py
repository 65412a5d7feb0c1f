"""The server's table of operators is that of the definitions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import operator_kinds


def test_the_table_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert operator_kinds.main(["--check"]) == 0, "run python scripts/operator_kinds.py"
    old = tmp_path / "operator_kinds.py"
    old.write_text(operator_kinds.MODULE.read_text().replace('"Tile"', '"Tiles"'))
    monkeypatch.setattr(operator_kinds, "MODULE", old)
    assert operator_kinds.main(["--check"]) == 1 and operator_kinds.main([]) == 0
    assert operator_kinds.main(["--check"]) == 0
