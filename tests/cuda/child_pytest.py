"""Runs tests in a pytest of their own, with a plugin that stands in for a device."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CUDA_PACKAGES = Path(sys.prefix) / "cuda-packages"  # CuPy and what it needs to compile: `make hostcuda` installs them


@dataclass(frozen=True)
class Results:
    """The tests of a run by name, and what the process printed."""

    passed: set[str]
    failed: set[str]
    skipped: dict[str, str]  # with the reason
    output: str


def gpu_files() -> list[str]:
    """The files of tests with the mark `gpu`."""
    files = (ROOT / "tests").rglob("test_*.py")
    return sorted(str(file.relative_to(ROOT)) for file in files if "mark.gpu" in file.read_text())


def environment_with(*folders: Path) -> dict[str, str]:
    """The environment of a process that finds modules in these folders, too."""
    path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def run(plugin: str, arguments: Sequence[str], folder: Path, timeout: float, **variables: str) -> Results:
    """Run pytest with a plugin of this folder. `folder` takes the report; `variables` are set in its environment."""
    report = folder / f"{plugin}.xml"
    options = ["-p", plugin, "-p", "no:randomly", "-q", "--tb=short", f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=ROOT,
        env={**environment_with(HERE, CUDA_PACKAGES), **variables},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    output = done.stdout[-20_000:] + done.stderr[-5_000:]
    assert report.exists(), output
    passed, failed, skipped = set(), set(), {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        reason = case.find("skipped")
        if reason is not None:
            skipped[name] = reason.get("message", "")
        elif case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
        else:
            passed.add(name)
    assert done.returncode in (0, 1), output
    return Results(passed, failed, skipped, output)
