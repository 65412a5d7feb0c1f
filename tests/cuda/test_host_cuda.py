"""The tests marked `gpu` pass with the real CuPy, whose kernels run on this CPU. It says nothing about a device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from child_pytest import CUDA_PACKAGES, HERE, Results, environment_with, gpu_files, run

pytestmark = pytest.mark.slow

ON_DEVICES = ["one GPU", "CUDA provider", "mpiexec", "management library"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the kernels' sources."""
    return tmp_path_factory.mktemp("sources")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, sources: Path) -> Results:
    """The results of all tests marked `gpu`."""
    code = "from host_cuda import build; print(build.missing() or '')"
    environment = environment_with(HERE, CUDA_PACKAGES)
    asked = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    if reason := asked.stdout.strip():
        pytest.skip(reason)
    arguments = ["-m", "gpu", "-n", "auto", "--maxprocesses", "4", *gpu_files()]
    folder = tmp_path_factory.mktemp("report")
    return run("on_host_cuda", arguments, folder, timeout=1800, OX_KERNEL_SOURCES=str(sources))


def test_the_tests_marked_gpu(results: Results) -> None:
    assert not results.failed, results.output
    assert len(results.passed) > 600
    others = [reason for reason in results.skipped.values() if not any(part in reason for part in ON_DEVICES)]
    assert not others
