"""Scripts that use Ray, in processes of their own: what Ray starts ends with them, however they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# Ray's own waiting times, shorter for a cluster on one machine
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "5",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "OMP_NUM_THREADS": "1",
}

Lines = list[dict[str, Any]]


@pytest.fixture(scope="session")
def run_script() -> Callable[..., Lines]:
    """Runs a script of this folder; returns the lines of JSON that it printed. Skips where Ray is not installed."""
    pytest.importorskip("ray.train", reason='Ray is not installed: pip install "ox-onnx[ray]"')

    def run(name: str, folder: Path, *arguments: str, limit: float = 300, **env: str) -> Lines:
        path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
        with open(folder / "stderr", "w+") as errors:
            process = subprocess.Popen(
                [sys.executable, str(HERE / name), *arguments], cwd=folder, text=True, start_new_session=True,
                env={**os.environ, **SETTINGS, "PYTHONPATH": path, **env}, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
            try:
                out, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, _ = process.communicate()
                process.returncode = 137
            errors.seek(0)
            assert process.returncode == 0, f"{name} ended with {process.returncode}: {out}{errors.read()[-6000:]}"
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

    return run
