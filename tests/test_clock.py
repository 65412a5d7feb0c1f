"""A machine that has just started: its monotonic clock begins at zero, and nothing may lean on a later one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "tests/serve/access/test_bucket.py",
    "tests/serve/access/test_guard.py",
    "tests/serve/access/test_file_watcher.py",
    "tests/serve/batching/test_deadlines.py",
    "tests/serve/transport/http2/test_abuse_limits.py",
    "tests/serve/telemetry/test_stages.py",
    "tests/serve/protocol/v2/test_statistics.py",
    "tests/train/loggers",
]
NAMESPACE = ["unshare", "--user", "--map-root-user", "--time", "--fork"]
# Python's clocks, before any module takes them; libraries in C keep the machine's.
PATCHED = """
import sys, time
for name in ("monotonic", "perf_counter"):
    real = getattr(time, name)
    setattr(time, name, lambda real=real, zero=real(): real() - zero)
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def run_pages(*command: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    words = [*command, "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *PAGES]
    done = subprocess.run(words, cwd=ROOT, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]


def test_clocks_of_python_that_begin_at_zero() -> None:
    run_pages(sys.executable, "-c", PATCHED)


def test_a_machine_that_has_just_started() -> None:
    """All clocks of the process, in a time namespace: Linux has them, for root or who may make user namespaces."""
    try:
        uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
        shifted = [*NAMESPACE, f"--monotonic=-{max(0, uptime - 2)}"]
        why = subprocess.run([*shifted, "true"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        why = str(error)
    if why:
        pytest.skip(f"no time namespace here: {why.strip()}")
    run_pages(*shifted, sys.executable, "-m", "pytest")
