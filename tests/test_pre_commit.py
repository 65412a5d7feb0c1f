""".pre-commit-config.yaml: its hooks are local, and their commands run here, without the network."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
ROOT = Path(__file__).resolve().parents[1]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
HOOKS: dict[str, dict[str, Any]] = {hook["id"]: hook for repo in CONFIG["repos"] for hook in repo["hooks"]}
ONE_FILE = "ox/errors.py"


def command_of(hook: dict[str, Any]) -> list[str]:
    """The command as pre-commit runs it for one file, with the tools of the environment of this test."""
    program, *options = shlex.split(hook["entry"])
    folder, _, name = program.rpartition("/")
    assert folder == ".venv/bin", "the tools are those of the environment that make creates"
    tool = [sys.executable] if name == "python" else [sys.executable, "-m", name]
    return [*tool, *options, *([] if hook.get("pass_filenames") is False else [ONE_FILE])]


def test_hooks_are_local() -> None:
    assert [repo["repo"] for repo in CONFIG["repos"]] == ["local"]
    assert {hook["language"] for hook in HOOKS.values()} == {"system"}
    assert {"ruff-check", "ruff-format", "mypy", "walls"} == set(HOOKS)


@pytest.mark.parametrize("name", HOOKS)
def test_its_files_are_there(name: str) -> None:
    hook = HOOKS[name]
    assert hook.get("types_or") or re.search(hook["files"], ONE_FILE)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("mypy", "walls"))) for name in HOOKS]
)
def test_a_hook_passes(name: str) -> None:
    command = command_of(HOOKS[name])
    pytest.importorskip(command[2], reason=f"{command[2]} is not installed")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "text"), [("ruff-check", "import os\n"), ("ruff-format", "x = {  'a':1}\n")])
def test_a_hook_finds_what_is_wrong(name: str, text: str, tmp_path: Path) -> None:
    pytest.importorskip("ruff", reason="ruff is not installed")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(text)
    done = subprocess.run([*command_of(HOOKS[name])[:-1], wrong], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
