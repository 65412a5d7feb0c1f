"""deploy/ox.service, as systemd itself reads it."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ox.serve import RequestLimits


@pytest.fixture(scope="module")
def text(deploy: Path) -> str:
    return (deploy / "ox.service").read_text()


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300, check=False)


def written(text: str, folder: Path) -> str:
    """The unit, with a program that exists on this machine."""
    path = folder / "ox.service"
    path.write_text(text.replace("/opt/ox/bin/ox", shutil.which("true") or "/bin/true"))
    return str(path)


def test_systemd_understands_every_line(text: str, tmp_path: Path) -> None:
    done = analyze("verify", written(text, tmp_path))
    assert done.returncode == 0 and "ox.service" not in done.stderr, done.stderr


@pytest.mark.parametrize("wrong", ["ProtectSystem=strong", "Nonsense=yes", "ExecStart=ox"])
def test_systemd_finds_a_mistake(text: str, tmp_path: Path, wrong: str) -> None:
    broken = text.replace("[Service]\n", f"[Service]\n{wrong}\n")
    assert "ox.service" in analyze("verify", written(broken, tmp_path)).stderr


def test_it_exposes_little(text: str, tmp_path: Path) -> None:
    """On systemd's scale from 0 to 10, of which 9.6 is a service without any of it."""
    if analyze("security", "--help").returncode or "--offline" not in analyze("--help").stdout:
        pytest.skip("this systemd cannot rate a unit that is not installed")
    hard = analyze("security", "--offline=true", "--threshold=20", written(text, tmp_path))
    assert hard.returncode == 0, hard.stdout[-2000:]
    soft = re.sub(r"^(Protect|Private|Restrict|SystemCall)\w+=.*\n", "", text, flags=re.M)
    assert analyze("security", "--offline=true", "--threshold=20", written(soft, tmp_path)).returncode != 0


def test_what_it_starts(text: str, options: Callable[[list[str]], dict[str, Any]]) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(text)
    service = unit["Service"]
    program, serve, *arguments = shlex.split(service["ExecStart"])
    assert program.endswith("/ox") and serve == "serve"
    parsed = options(arguments)
    assert parsed["host"] == "127.0.0.1" and parsed["keys"] is not None
    assert int(service["TimeoutStopSec"]) > RequestLimits().drain_s
    assert int(service["LimitNOFILE"]) > RequestLimits().connections
    assert service["User"] != "root"
