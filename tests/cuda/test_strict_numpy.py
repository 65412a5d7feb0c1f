"""The tests marked `gpu` pass with a stand-in for CuPy. It says nothing about a device: here, they are skipped."""

from __future__ import annotations

from pathlib import Path

from child_pytest import gpu_files, run


def test_the_tests_marked_gpu(tmp_path: Path) -> None:
    results = run("on_strict_numpy", ["-m", "gpu", *gpu_files()], tmp_path, timeout=600)
    assert not results.failed, results.output
    assert len(results.passed) > 500
    known = ("the stand-in has no", "one GPU", "CUDA provider")
    others = {name: why for name, why in results.skipped.items() if not any(part in why for part in known)}
    assert not others
