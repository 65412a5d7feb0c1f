"""Files that change while they are used."""

from __future__ import annotations

import logging
from pathlib import Path
from time import monotonic

import pytest

from ox.errors import ArgumentError
from ox.serve.access.watched import Watched


def number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError) as error:
        raise ArgumentError("no number", got=str(error)) from None


def replaced(path: Path, text: str) -> None:
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


def test_changes_are_followed_and_damage_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ox.serve")
    path = tmp_path / "n"
    path.write_text("1")
    watched = Watched("numbers", [path], lambda: number(path), 0.0)
    now = monotonic() + 1
    assert watched.get(now) == 1
    replaced(path, "22")
    assert watched.get(now) == 22 and "the numbers changed and were read again" in caplog.text
    replaced(path, "nonsense")
    assert [watched.get(now) for _ in range(3)] == [22] * 3
    assert caplog.text.count("cannot be used; the old ones stay: no number") == 1
    path.unlink()
    assert watched.get(now) == 22
    replaced(path, "3")
    assert watched.get(now) == 3


def test_looked_at_once_in_a_while(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    watched = Watched("numbers", [path], lambda: number(path), 10.0)
    replaced(path, "2")
    now = monotonic()
    assert watched.get(now + 5) == 1
    assert watched.get(now + 11) == 2
    replaced(path, "3")
    assert watched.get(now + 12) == 2


def test_what_is_wrong_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no number"):
        Watched("numbers", [tmp_path / "n"], lambda: number(tmp_path / "n"))
