"""The CPU's own tests pass with their tensors on "cuda", of a stand-in: what ox makes itself is there, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from child_pytest import run

FOLDERS = [
    "autograd",
    "func",
    "functions",
    "linalg",
    "nn",
    "optim",
    "train/test_batches.py",
    "train/test_optimizers.py",
    "train/test_trainer.py",
]


@pytest.mark.slow
def test_the_tests_of_the_cpu(tmp_path: Path) -> None:
    arguments = ["-m", "not slow and not gpu", *(f"tests/{f}" for f in FOLDERS)]
    results = run("on_moved_tensors", arguments, tmp_path, timeout=1800)
    assert not results.failed, results.output
    assert len(results.passed) > 600
