"""The programs of the first steps, on a machine without a GPU: what they find, and what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_run import environment, smoke

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


def test_the_first_thing_that_fails_is_named(tmp_path: Path) -> None:
    if cuda.available():
        pytest.skip("there is a GPU")
    done, found = run("smoke", tmp_path, "a tensor")
    assert done.returncode == 1
    (text,) = found["failed"]
    assert text.startswith(f"{smoke.a_tensor.__doc__} DeviceError: ")
