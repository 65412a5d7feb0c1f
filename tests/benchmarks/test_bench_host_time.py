"""The benchmark of the host's time runs, and nothing computes while it measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from child_pytest import CUDA_PACKAGES, HERE, environment_with

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
CODE = """
import bench_host_time as bench
if reason := bench.host_cuda.build.missing():
    raise SystemExit("missing: " + reason)
bench.ROUNDS, bench.CALLS = 1, 2
bench.main()
import cupy
x = cupy.zeros(3, "f")
with bench.host_cuda.idle(), bench.host_cuda.counting() as counted:
    x += 1
assert counted["launches"] == 1 and not x.get().any()
x += 1
assert x.get().all()
"""


def test_the_figures() -> None:
    environment = environment_with(FOLDER, HERE, CUDA_PACKAGES)
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=300)
    if done.stderr.startswith("missing: "):
        pytest.skip(done.stderr)
    assert not done.returncode, done.stderr
    *times, texts = [line.split()[-1] for line in done.stdout.splitlines()]
    assert len(times) == 12 and all(float(time) > 0 for time in times) and texts == "0"
