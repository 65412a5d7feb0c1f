"""The lines of users on a device: one that ends its process does not stop the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from gpu_run import user_line_verdicts
from gpu_run.environment import ROOT

LINES = """
def read():
    return [("expression", "matrix", line) for line in ("good", "broken device", "wrong", "ends", "last")]
"""
CHECK = """
import os

def check(name, kind, line, counting):
    with counting:
        pass
    if line == "broken device":
        raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    assert line != "wrong", "the GPU gives 1, the CPU 2"
    if line == "ends":
        os._exit(11)
    print(line, os.getpid())
"""


def test_another_process_goes_on(tmp_path: Path) -> None:
    (tmp_path / "user_lines.py").write_text(LINES)
    (tmp_path / "user_line_check.py").write_text(CHECK)
    (tmp_path / "torch.py").write_text("raise ImportError('no PyTorch here')")
    log = tmp_path / "lines.log"
    path = os.pathsep.join([str(tmp_path), str(ROOT / "scripts")])
    env = {**os.environ, "PYTHONPATH": path, "GPU_STAND_IN": "", "GPU_QUICK": ""}
    words = [sys.executable, "-m", "gpu_run.user_line_verdicts", str(log)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stderr
    ran = dict(line.split() for line in done.stdout.splitlines()[:2])
    assert [*ran] == ["good", "last"] and ran["good"] != ran["last"]
    found = user_line_verdicts.findings(log)
    assert found["failed"] == [
        "expression: broken device: RuntimeError: cudaErrorIllegalAddress: an illegal memory access was encountered"
        " (held on host_cuda)",
        "expression: wrong: AssertionError: the GPU gives 1, the CPU 2 (held on host_cuda)",
        "expression: ends: the process ended in this line (held on host_cuda)",
    ]
    assert (found["held"], found["lines"]) == (2, 5)
    assert found["counted by"] == "nothing: PyTorch, whose profiler counts, is not installed"


def test_lines_that_were_not_reached_and_lines_that_do_more(tmp_path: Path) -> None:
    log = tmp_path / "lines.log"
    entries = [
        {"counted_by": "host_cuda", "lines": 3},
        {"number": 0, "label": "optimizer: Lion()", "verdict": "", "counts": {"to device": 4}},
        {"number": 1, "label": "expression: x + 1", "verdict": "", "counts": {"waits": 1}},
    ]
    log.write_text("\n".join(map(json.dumps, entries)))
    found = user_line_verdicts.findings(log)
    assert found["failed"] == ["1 of 3 lines were not reached"]
    assert found["notes"] == ["expression: x + 1: waits 1 (host_cuda: 0)"]
