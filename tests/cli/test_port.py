"""`ox port`: where results go, what is listed, and what is refused."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ox_cli.main import main

SCRIPT = b"import torch\r\n\r\nx = torch.ones(2)  \r\n"
PORTED = b"import ox as torch\r\n\r\nx = torch.ones(2)  \r\n"
LACKING = b"import torch\ny = torch.polar(1, 2)\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(SCRIPT)
    return path


def test_to_stdout(script: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["port", str(script)]) == 0
    out, err = capfdbinary.readouterr()
    assert out == PORTED and script.read_bytes() == SCRIPT
    assert err.decode() == f"{script}: 1 import to rewrite, nothing without a counterpart\n"


def test_the_list_has_places_and_ways_out(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_bytes(LACKING)
    assert main(["port", str(script)]) == 0
    listed, summary = capsys.readouterr().err.splitlines()
    assert listed.startswith(f"{script}:2:5: torch.polar: ox.fft.complex(")
    assert summary == f"{script}: 1 import to rewrite, 1 without a counterpart"


def test_in_place(script: Path) -> None:
    script.chmod(0o755)
    link = script.with_name("link.py")
    link.symlink_to(script)
    assert main(["port", "--in-place", str(link)]) == 0
    assert script.read_bytes() == PORTED and link.is_symlink()
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    before = script.stat().st_mtime_ns
    assert main(["port", "--in-place", str(script)]) == 0
    assert script.stat().st_mtime_ns == before, "nothing to change, nothing written"
    assert sorted(os.listdir(script.parent)) == ["link.py", "train.py"]


def test_a_failed_write_leaves_the_file(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["port", "--in-place", str(script)]) == 1
    assert "No space left" in capsys.readouterr().err
    assert script.read_bytes() == SCRIPT and os.listdir(script.parent) == ["train.py"]


def test_to_a_file_and_to_a_folder(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["port", str(script), "-o", str(tmp_path / "new.py")]) == 0
    assert (tmp_path / "new.py").read_bytes() == PORTED
    out.mkdir()
    assert main(["port", str(script), "-o", str(out)]) == 0
    assert (out / "train.py").read_bytes() == PORTED


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    for name in ("train.py", "net/layers.py", ".git/hook.py", "net/__pycache__/old.py", "venv/lib.py"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(SCRIPT)
    (source / "venv" / "pyvenv.cfg").touch()
    (source / "net" / "empty.py").touch()
    (source / "notes.txt").write_bytes(SCRIPT)
    assert main(["port", str(source), "--output", str(out)]) == 0
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert written == ["net/empty.py", "net/layers.py", "train.py"]
    assert (out / "net" / "layers.py").read_bytes() == PORTED
    assert f"{source / 'net' / 'empty.py'}: no imports to rewrite" in capsys.readouterr().out
    assert main(["port", str(source), "--in-place"]) == 0
    assert (source / "train.py").read_bytes() == PORTED and (source / ".git" / "hook.py").read_bytes() == SCRIPT


def test_check(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["port", "--check", str(script)]) == 0
    script.write_bytes(LACKING)
    assert main(["port", "--check", str(script)]) == 1
    assert "torch.polar" in capsys.readouterr().out and script.read_bytes() == LACKING
    script.write_bytes(b"try:\n    import apex\nexcept ImportError:\n    apex = None\n")
    assert main(["port", "--check", str(script)]) == 0
    assert "apex (guarded)" in capsys.readouterr().out


def test_packages_of_the_scripts_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("timm/__init__.py", "timm/models/net.py", "train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("from timm.models import net\n")
    assert main(["port", "--check", str(tmp_path)]) == 0
    assert main(["port", "--check", str(tmp_path / "train.py")]) == 0
    assert main(["port", "--check", str(tmp_path / "timm" / "models" / "net.py")]) == 1
    assert "timm: it works on PyTorch's own tensors" in capsys.readouterr().out


def test_json(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = script.with_name("other.py")
    other.write_bytes(LACKING)
    old = script.with_name("old.py")
    old.write_bytes(b"print 1\n")
    assert main(["port", "--json", str(script), str(other), str(old)]) == 1
    first, second, third = json.loads(capsys.readouterr().out)["files"]
    assert first == {"path": str(script), "imports": 1, "missing": []}
    (missing,) = second["missing"]
    assert (missing["line"], missing["column"], missing["name"], missing["guarded"]) == (2, 5, "torch.polar", False)
    assert "ONNX" in missing["hint"]
    assert third["path"] == str(old) and third["error"].startswith(f"{old} is Python 2; in {old}:1:1")


def test_no_script_is_run(script: Path) -> None:
    script.write_bytes(b"raise SystemExit(7)\nimport torch\n")
    assert main(["port", "--in-place", str(script)]) == 0
    assert script.read_bytes() == b"raise SystemExit(7)\nimport ox as torch\n"


def test_one_bad_file_keeps_no_other_from_its_work(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.with_name("old.py").write_bytes(b"print 1\n")
    assert main(["port", "--in-place", str(script.parent)]) == 1
    assert script.read_bytes() == PORTED
    assert "old.py is Python 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "options", "code", "message"),
    [
        ("nothing.py", [], 1, "nothing.py cannot be read"),
        ("empty", [], 1, "empty contains no Python file"),
        ("empty", ["train.py"], 1, "empty contains no Python file"),
        (".", [], 2, "several files cannot be printed"),
        ("train.py", ["--check", "--in-place"], 2, "exclude each other"),
        ("train.py", ["-o", "x.py", "--in-place"], 2, "exclude each other"),
        ("train.py", ["old.py", "-o", "notes.ipynb"], 2, "notes.ipynb is a file, but there are 2"),
        ("train.py", ["train.py", "-o", "empty"], 2, "the same name"),
        ("train.py", ["-o", "notes.ipynb/x.py"], 1, "could not be created"),
        ("notes.ipynb", [], 1, "is a notebook"),
        ("old.py", [], 1, "old.py is Python 2"),
        ("a\0b.py", [], 2, "null byte"),
    ],
)
def test_refused_in_one_line_or_a_few(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    name: str, options: list[str], code: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(script.parent)
    Path("empty").mkdir()
    Path("old.py").write_bytes(b"print 1\n")
    Path("notes.ipynb").write_text("{}")
    assert main(["port", name, *options]) == code
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err and len(err.splitlines()) <= 5
    assert script.read_bytes() == SCRIPT


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes where nobody may")
def test_read_only(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.chmod(0o444)
    assert main(["port", "--in-place", str(script)]) == 1
    assert "read-only" in capsys.readouterr().err and script.read_bytes() == SCRIPT


def test_read_only_for_root_too(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    assert main(["port", "--in-place", str(script)]) == 1
    assert "read-only" in capsys.readouterr().err and script.read_bytes() == SCRIPT
