"""The programs of the first steps, on a machine without a GPU: what they find, and what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_run import environment, smoke
from gpu_run.plan import Plan
from gpu_run.steps import Run

from ox.devices import cuda


def run(module: str, folder: Path, *more: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    file = folder / f"{module}.json"
    words = [sys.executable, "-m", f"gpu_run.{module}", str(file), *more]
    env = environment.variables(folder, None)
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=120)
    return done, json.loads(file.read_text())


def test_a_version_that_is_unknown_does_not_hide_the_others(tmp_path: Path) -> None:
    done, found = run("versions", tmp_path)
    assert done.returncode == 0, done.stderr
    assert found["versions"]["packages"]["numpy"] and found["versions"]["python"].startswith("3.")
    if not cuda.available():
        assert found["versions"]["card"].startswith("unknown: ")


@pytest.mark.parametrize(
    ("said", "state", "reason"),
    [
        ("========= Error: the target may not be traced: operation not permitted", "skipped", "not permitted"),
        ("========= Error: no such option", "failed", "no such option (memcheck.txt)"),
    ],
)
def test_a_tool_that_the_machine_refuses(said: str, state: str, reason: str, tmp_path: Path) -> None:
    """It ends before a kernel is launched, or in the first one."""
    tool = ["sh", "-c", 'echo "$0"; exit 1', said]
    step = replace(Plan(tmp_path, "", False).sanitizer("memcheck"), skipped=lambda: "")
    step = replace(step, words=[*step.words[:4], *tool])
    outcome = Run(tmp_path, 600, environment.variables(tmp_path, None), tmp_path, tell=lambda line: None).one(step, 300)
    assert outcome.state == state and outcome.reason.endswith(reason)


def test_the_first_thing_that_fails_is_named(tmp_path: Path) -> None:
    if cuda.available():
        pytest.skip("there is a GPU")
    done, found = run("smoke", tmp_path, "a tensor")
    assert done.returncode == 1
    (text,) = found["failed"]
    assert text.startswith(f"{smoke.a_tensor.__doc__} DeviceError: ")
