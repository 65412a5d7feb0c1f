"""Outputs are tried before the work, and a trial leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from ox.errors import WriteError
from ox_cli import outputs


def test_what_can_be_written_stays_as_it_was(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("kept")
    outputs.check(None, old, tmp_path / "new.json", Path("/dev/null"))
    assert old.read_text() == "kept" and list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize("name", ["none/x", "", "file/x", "x" * 300, "a\0b"])
def test_what_cannot(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="cannot be written") as caught:
        outputs.check(tmp_path / name)
    assert caught.value.hint and caught.value.got


def test_two_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="cannot be written"):
        outputs.check(tmp_path / "x", tmp_path / "." / "x")
    assert not list(tmp_path.iterdir())


def test_what_fails_after_all(tmp_path: Path) -> None:
    with pytest.raises(WriteError) as caught:
        outputs.write(tmp_path, lambda: tmp_path.write_text("x"))
    assert caught.value.hint == outputs.HINT
