"""What a run of the tests says of a test that hangs, or fails by chance in .ci/run, and what its processes share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HANGS = "import threading\n\ndef test_hangs():\n    threading.Event().wait()\n\ndef test_after(): pass\n"

# A `make` whose nth `test-all` ends with the nth word of RESULTS, and says that the tests of FAILED failed.
MAKE = """#!/usr/bin/env bash
echo "make $*"
[ "$1" = test-all ] || exit 0
echo run >>runs
mkdir -p .pytest_cache/v/cache
echo "$FAILED" >.pytest_cache/v/cache/lastfailed
echo "====== FAILURES ======"
echo "output of run $(wc -l <runs)"
echo "====== short test summary info ======"
exit $(cut -d" " -f$(wc -l <runs) <<<"$RESULTS")
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_test_that_hangs_is_named(workers: str, tmp_path: Path) -> None:
    (tmp_path / "test_file.py").write_text(HANGS)
    options = ["-c", str(ROOT / "pyproject.toml"), "-o", "faulthandler_timeout=1", "-p", "no:cacheprovider"]
    words = [sys.executable, "-m", "pytest", *options, "-p", "no:randomly", "-n", workers, f"--rootdir={tmp_path}"]
    done = subprocess.run([*words, "test_file.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert "Timeout (0:00:01)!" in done.stderr and 'test_file.py", line 4 in test_hangs' in done.stderr
    if workers == "1":  # the others run in another worker
        assert "crashed while running 'test_file.py::test_hangs'" in done.stdout and "1 passed" in done.stdout


@pytest.mark.parametrize(
    ("results", "failed", "code", "shown", "absent"),
    [
        ("0", "{}", 0, ["all passed"], ["second try"]),
        (
            "2 0",
            '{"tests/a.py::one": true}',
            0,
            ["passed on the second try, to be mended: tests/a.py::one\n== at first\n", "== on the second try\n"],
            [],
        ),
        ("2 2", '{"tests/a.py::one": true}', 1, ["== failed twice\n", "output of run 2"], ["make parity"]),
        ("2 0", '{"a": true, "b": true}', 1, ["no second try", "\na\nb\n"], ["output of run 2", "make parity"]),
        ("2 0", "{}", 1, ["no second try"], ["output of run 2", "make parity"]),
    ],
    ids=["passed", "by chance", "twice", "two", "none"],
)
def test_the_second_try(
    results: str, failed: str, code: int, shown: list[str], absent: list[str], tmp_path: Path
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    for name, text in (("make", MAKE), ("apt-get", "#!/bin/sh\n"), ("chromium", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path), "RESULTS": results, "FAILED": failed}
    done = subprocess.run([".ci/run"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    for text in [*shown, "output of run 1"]:
        assert text in done.stdout
    for text in absent:
        assert text not in done.stdout
    if "to be mended" in done.stdout:
        first, second = done.stdout.rpartition("== at first\n")[2].split("== on the second try\n")
        assert "output of run 1" in first and "output of run 2" in second


def test_a_shared_folder_is_written_once(shared_folder: Callable[..., Path]) -> None:
    calls = []

    def write(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").touch(exist_ok=False)
        if len(calls) == 1:
            raise OSError("fails halfway")

    with pytest.raises(OSError, match="halfway"):
        shared_folder("written_once", write)
    folder = shared_folder("written_once", write)
    assert shared_folder("written_once", write) == folder and (folder / "file").exists()
    assert calls == [folder, folder]
