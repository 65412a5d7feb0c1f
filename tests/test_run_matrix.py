"""scripts/run_matrix.py: the environments in which the tests run."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import run_matrix

root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root, with setpriv, runs tests as somebody else"
)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of two files, one of which is left out."""
    tree = tmp_path / "small"
    (tree / ".venv").mkdir(parents=True)
    (tree / ".venv" / "file").touch()
    (tree / "file").write_text("text")
    (tree / "file").chmod(0o600)
    monkeypatch.setattr(run_matrix, "ROOT", tree)
    return tree


def test_who_is_not_root_does_without(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run_matrix.run("ordinary-user", 1, "1", [], Path("nowhere")) == 0
    assert "only root runs tests as somebody else" in capsys.readouterr().out
    assert run_matrix.why_skipped("usual") == ""


@root
def test_a_python_that_the_user_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    assert f"cannot run {python}" in run_matrix.why_skipped("ordinary-user")


@root
def test_an_ordinary_user_has_a_copy(small: Path, tmp_path: Path) -> None:
    copy = run_matrix.tree("ordinary-user", tmp_path)
    assert run_matrix.tree("ordinary-user", tmp_path) == copy and run_matrix.tree("usual", tmp_path) == small
    assert (copy / "file").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert sorted(path.name for path in copy.iterdir()) == ["file", "home"]
    env = run_matrix.environment("ordinary-user", tmp_path)
    assert env["HOME"] == str(copy / "home") and env["USER"] == "nobody"


@root
def test_an_ordinary_user_has_no_rights_of_root() -> None:
    words = [*run_matrix.as_user(), "cat", "/proc/self/status"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert set(fields["Uid"].split()) == {str(pwd.getpwnam("nobody").pw_uid)}
    assert int(fields["CapEff"], 16) == 0 and int(fields["CapPrm"], 16) == 0
