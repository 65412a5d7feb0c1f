"""Files that change while they are used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ox.errors import ArgumentError
from ox.serve.access import file_watcher
from ox.serve.access.file_watcher import FileWatcher


def number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError) as error:
        raise ArgumentError("no number", got=str(error)) from None


def replaced(path: Path, text: str) -> None:
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


# A monotonic clock may begin at zero (a machine that has just started) or be far along.
STARTS = pytest.mark.parametrize("start", [0.0, 1e9])


@STARTS
def test_changes_are_followed_and_damage_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, start: float
) -> None:
    caplog.set_level(logging.INFO, "ox.serve")
    monkeypatch.setattr(file_watcher, "EVERY_S", 0.0)
    path = tmp_path / "n"
    path.write_text("1")
    numbers = FileWatcher("numbers", [path], lambda: number(path), start)
    now = start + 1
    assert numbers.get(now) == 1
    replaced(path, "22")
    assert numbers.get(now) == 22 and "the numbers changed and were read again" in caplog.text
    replaced(path, "nonsense")
    assert [numbers.get(now) for _ in range(3)] == [22] * 3
    assert caplog.text.count("cannot be used; the old ones stay: no number") == 1
    path.unlink()
    assert numbers.get(now) == 22
    replaced(path, "3")
    assert numbers.get(now) == 3


@STARTS
def test_looked_at_once_in_a_while(tmp_path: Path, start: float) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    numbers = FileWatcher("numbers", [path], lambda: number(path), start)
    replaced(path, "2")
    assert numbers.get(start + 0.5) == 1
    assert numbers.get(start + 1.5) == 2
    replaced(path, "3")
    assert numbers.get(start + 2) == 2


def test_what_is_wrong_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no number"):
        FileWatcher("numbers", [tmp_path / "n"], lambda: number(tmp_path / "n"), 0.0)
