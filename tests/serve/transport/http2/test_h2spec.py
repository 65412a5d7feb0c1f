"""The conformance suite h2spec, where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest

from ox.serve import RequestLimits


@pytest.mark.skipif(shutil.which("h2spec") is None, reason="h2spec is not installed")
def test_h2spec(serve: Any) -> None:
    with serve(RequestLimits()) as site:
        command = ["h2spec", "--strict", "--port", str(site.port), "--timeout", "5"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    totals = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", done.stdout)
    assert totals is not None and int(totals[1]) > 140, done.stdout[-2000:]
    assert totals[4] == "0" and totals[3] == "0", done.stdout[done.stdout.find("Failures:") :]
