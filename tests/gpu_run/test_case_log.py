"""The plugin that writes down each test as soon as it is over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_run import case_log
from gpu_run.environment import ROOT
from gpu_run.plan import Plan

pytest.importorskip("xdist")

TESTS = """
import warnings

import pytest

def test_passes(): warnings.warn("a name of old", DeprecationWarning)
def test_fails(): assert 1 == 2, "one is not two"
def test_is_skipped(): pytest.skip("one GPU")
def test_breaks(): raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
def test_comes_after(): pass

@pytest.fixture
def broken(): raise ValueError("no fixture")
def test_without_its_fixture(broken): pass
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The findings of a run in two processes, of the file above and one that cannot be read."""
    folder = tmp_path_factory.mktemp("cases")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (folder / "test_some.py").write_text(TESTS)
    (folder / "test_unread.py").write_text("import ox_no_such_module\n")
    log = folder / "cases.log"
    words = [sys.executable, "-m", "pytest", "-p", "gpu_run.case_log", "-p", "no:randomly", "-p", "no:cacheprovider"]
    words += ["-n", "1", "--max-worker-restart=3", "--continue-on-collection-errors"]
    planned = Plan(folder, "", False).tests("tests", [], 1, 1).words
    words += [word for i in range(len(planned)) if planned[i] == "-W" for word in planned[i : i + 2]]
    own = {
        name: text for name, text in os.environ.items() if not name.startswith("PYTEST_XDIST")
    }  # if this is a worker
    env = {**own, "GPU_CASE_LOG": str(log), "PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), str(ROOT)])}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    return case_log.read(log)


def test_each_outcome(found: dict[str, Any]) -> None:
    assert found["passed"] == ["test_some.py::test_comes_after", "test_some.py::test_passes"]
    assert found["skipped"] == {"test_some.py::test_is_skipped": "Skipped: one GPU"}
    failed = dict(text.split(": ", 1) for text in found["failed"])
    assert failed["test_some.py::test_fails"] == "AssertionError: one is not two"
    assert failed["test_some.py::test_without_its_fixture"] == "ValueError: no fixture"
    assert "ox_no_such_module" in failed["test_unread.py"]


def test_a_deprecation_is_reported_and_no_failure(found: dict[str, Any]) -> None:
    """In a suite whose warnings are errors."""
    assert found["warnings"] == {"DeprecationWarning: a name of old": 1}


def test_what_breaks_the_device_ends_its_process_alone(found: dict[str, Any]) -> None:
    (text,) = [text for text in found["failed"] if "test_breaks" in text]
    assert text.endswith("cudaErrorIllegalAddress: an illegal memory access was encountered")
    assert "test_some.py::test_comes_after" in found["passed"]


@pytest.mark.parametrize(
    ("text", "breaks"),
    [
        ("CUDADriverError: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", True),
        ("cudaErrorAssert: device-side assert triggered", True),
        ("cudaErrorMemoryAllocation: out of memory", False),
        ("an index of Gather is out of range", False),
    ],
)
def test_errors_after_which_nothing_works(text: str, breaks: bool) -> None:
    assert case_log.breaks_the_device(text) == breaks


def test_a_test_that_failed_has_failed(tmp_path: Path) -> None:
    """Its report may come twice: from the process that ends, and from pytest-xdist, which sees that it has ended."""
    entries = [("a", "failed", "the first"), ("a", "failed", "the second"), ("b", "passed", ""), ("b", "failed", "end")]
    log = tmp_path / "log"
    log.write_text("".join(json.dumps({"test": t, "outcome": o, "reason": r}) + "\n" for t, o, r in entries))
    found = case_log.read(log)
    assert found["failed"] == ["a: the first", "b: end"] and found["failed tests"] == ["a", "b"] and not found["passed"]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(json.dumps({"test": "a", "outcome": "passed", "reason": ""}) + '\n{"test": "b", "outc')
    assert case_log.read(log)["passed"] == ["a"]
