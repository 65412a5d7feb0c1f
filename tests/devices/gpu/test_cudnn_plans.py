"""The real cuDNN builds the plans of ox's graphs without a device, where its packages are installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ox

TESTS = Path(__file__).parents[2]
SCRIPT = TESTS / "cuda/cudnn_plans.py"
MISSING = 77


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_plans(capability: int, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    paths = [TESTS, TESTS / "cuda", Path(ox.__file__).parents[1], *map(Path, sys.path)]
    run = subprocess.run(
        [sys.executable, os.fspath(SCRIPT), str(capability), os.fspath(tmp_path)], capture_output=True, text=True,
        timeout=600, check=False, env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.fspath, paths))},
    )  # fmt: skip
    if run.returncode == MISSING:
        pytest.skip(f"cuDNN is not installed: {run.stdout.strip()} (nvidia-cudnn-frontend, nvidia-cudnn-cu13)")
    assert run.returncode == 0, run.stderr[-3000:]
    found = dict(json.loads(line) for line in run.stdout.splitlines() if line.startswith("["))
    assert len(found) > 100 and not {name: problem for name, problem in found.items() if problem}
