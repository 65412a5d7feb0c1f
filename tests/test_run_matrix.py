"""scripts/run_matrix.py: the environments in which the tests run."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import run_matrix

root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root, with setpriv, runs tests as somebody else"
)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of three files, one of which is left out."""
    tree = tmp_path / "small"
    (tree / ".venv").mkdir(parents=True)
    (tree / ".venv" / "file").touch()
    (tree / "file").write_text("text")
    (tree / "file").chmod(0o600)
    (tree / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    monkeypatch.setattr(run_matrix, "ROOT", tree)
    return tree


CHILDREN = "open(f'/proc/{os.getppid()}/task/{os.getppid()}/children').read().split()"
CHECKS = {
    "usual": "assert os.environ['HOME']",
    "one-core": "assert len(os.sched_getaffinity(0)) == 1",
    "busy": f"assert len({CHILDREN}) > 8",
    "busy-disk": f"assert len({CHILDREN}) > 2",
    "no-home": "assert 'HOME' not in os.environ",
    "empty-home": "assert not os.listdir(os.environ['HOME'])",
    "read-only-home": "pathlib.Path.home().joinpath('file').touch()",
    "no-network": "socket.create_server(('127.0.0.1', 0)); socket.create_connection(('198.51.100.1', 80))",
    "no-compiler": "assert shutil.which('sh') and not any(map(shutil.which, ('cc', 'g++', 'c++', 'clang')))",
    "far-away": "assert time.timezone == -14 * 3600 and os.environ['LC_ALL'] in ('C', 'tr_TR.UTF-8')",
    "full-disk": "pathlib.Path(tempfile.gettempdir(), 'file').write_bytes(bytes(1 << 24))",
}
ERRORS = {
    "read-only-home": "Read-only file system",
    "no-network": "Network is unreachable",
    "full-disk": "No space left on device",
}


def test_each_variant_is_what_it_says(small: Path, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, code in CHECKS.items():
        with subtests.test(name):
            variant, tree = run_matrix.VARIANTS[name], run_matrix.prepare(name, tmp_path)
            if run_matrix.skip_reason(name, tmp_path):
                continue  # no rights for that here
            code = f"import os, pathlib, shutil, socket, tempfile, time; {code}"
            words = run_matrix.command(variant, tmp_path, [sys.executable, "-c", code])
            env = run_matrix.environment(variant, tmp_path)
            with run_matrix.running(variant.background):
                done = subprocess.run(words, cwd=tree, env=env, capture_output=True, text=True)
            assert (ERRORS[name] in done.stderr) if name in ERRORS else (done.returncode == 0), done.stderr


@pytest.mark.parametrize(("error", "code"), [("No space left on device", 0), ("other", 1)])
@pytest.mark.usefixtures("small")
def test_a_failure_must_name_the_cause(
    error: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = run_matrix.Variant(cause="No space left on device")
    monkeypatch.setitem(run_matrix.VARIANTS, "full-disk", full)
    (run_matrix.ROOT / "test_file.py").write_text(
        f"def test_one(): raise OSError('{error}')\n"
        f"def test_rows(subtests):\n    with subtests.test('a row'): raise OSError('{error}')\n"
    )
    assert run_matrix.run("full-disk", 1, "0", [], tmp_path) == code
    shown = capsys.readouterr().out
    assert ("FAILED test_file.py::test_one - OSError: other" in shown) == (code == 1)
    assert ("SUBFAILED[a row] test_file.py::test_rows - OSError: other" in shown) == (code == 1)


def test_who_is_not_root_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root runs tests as somebody else" in run_matrix.skip_reason("ordinary-user", Path("nowhere"))
    assert run_matrix.skip_reason("usual", Path("nowhere")) == ""


@pytest.mark.usefixtures("small")
def test_another_python_has_its_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(run_matrix.VARIANTS, "other", run_matrix.Variant(python="python9.9"))
    assert run_matrix.run("other", 1, "0", [], tmp_path) == 0
    assert "not run: there is no python9.9" in capsys.readouterr().out
    (tmp_path / "python9.9").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nMADE_BY=$0 exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    rules = f"$(VENV)/.installed-dev:\n\tmkdir -p $(VENV)/bin && cp {wrapper} $(VENV)/bin/python\n"
    (run_matrix.ROOT / "Makefile").write_text(rules)
    (run_matrix.ROOT / "test_file.py").write_text(
        f"import os\ndef test_it(): assert os.environ['MADE_BY'] == '{tmp_path}/environment/python9.9/bin/python'\n"
    )
    assert run_matrix.run("other", 1, "0", [], tmp_path / "environment") == 0, capsys.readouterr().out


def test_a_python_in_a_folder_with_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "a folder" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setitem(run_matrix.VARIANTS, "other", run_matrix.Variant(python=str(python)))
    assert run_matrix.skip_reason("other", tmp_path) == ""


def test_an_environment_that_cannot_be_made_stops_no_other_run(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (small / "Makefile").write_text("$(VENV)/.installed-dev:\n\tfalse\n")
    (small / "test_file.py").write_text("def test_it(): pass\n")
    (small / "python9.9").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{small}:{os.environ['PATH']}")
    monkeypatch.setitem(run_matrix.VARIANTS, "other", run_matrix.Variant(python="python9.9"))
    monkeypatch.setattr(sys, "argv", ["run_matrix.py", "--variants", "other", "usual", "--workers", "0"])
    assert run_matrix.main() == 1
    _, failed, passed = capfd.readouterr().out.splitlines()
    assert failed.startswith("other ") and "failed: no environment of python9.9: " in failed
    assert passed.startswith("usual ") and "1 passed" in passed


@root
def test_a_python_that_the_user_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    assert f"cannot run {python}" in run_matrix.skip_reason("ordinary-user", tmp_path)


@root
def test_an_ordinary_user_has_a_copy(small: Path, tmp_path: Path) -> None:
    copy = run_matrix.prepare("ordinary-user", tmp_path)
    assert run_matrix.prepare("ordinary-user", tmp_path) == copy and run_matrix.prepare("usual", tmp_path) == small
    assert (copy / "file").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert sorted(path.name for path in copy.iterdir()) == ["file", "home", "pytest.ini"]
    env = run_matrix.environment(run_matrix.VARIANTS["ordinary-user"], tmp_path)
    assert env["HOME"] == str(copy / "home") and env["USER"] == "nobody"


@root
def test_an_ordinary_user_has_no_rights_of_root() -> None:
    words = run_matrix.command(run_matrix.VARIANTS["ordinary-user"], Path("/"), ["cat", "/proc/self/status"])
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert set(fields["Uid"].split()) == {str(pwd.getpwnam("nobody").pw_uid)}
    assert int(fields["CapEff"], 16) == 0 and int(fields["CapPrm"], 16) == 0
