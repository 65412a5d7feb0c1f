"""NCCL's operations and DistributedDataParallel on two ranks, whose devices are memory of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from child_pytest import CUDA_PACKAGES, HERE, environment_with
from ranks import MPIEXEC, THREADS, needs_mpi

pytestmark = [pytest.mark.slow, needs_mpi]


def output_of(folder: Path, *arguments: str) -> str:
    """What both ranks print."""
    environment = {**environment_with(HERE, CUDA_PACKAGES), **THREADS, "TMPDIR": str(folder)}
    code = "from host_cuda import build; print(build.missing() or '')"
    asked = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    if reason := asked.stdout.strip():
        pytest.skip(reason)
    path = str(HERE / "nccl_ranks.py")
    program = f"import host_cuda, runpy; host_cuda.install(); runpy.run_path({path!r}, run_name='__main__')"
    words = [str(MPIEXEC), "-n", "2", sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        return process.communicate(timeout=300)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    return output_of(tmp_path_factory.mktemp("nccl"))


CHECKS = ["reductions", "movements", "training", "other_steps", "waiting", "missing_gradients", "an_error_of_nccl"]


@pytest.mark.parametrize("check", CHECKS)
def test_on_both_ranks(output: str, check: str) -> None:
    for rank in (0, 1):
        assert f"{check} of rank {rank} held" in output, output


def test_a_rank_that_has_ended_is_named_and_not_waited_for(tmp_path: Path) -> None:
    output = output_of(tmp_path, "dead")
    assert "rank 0 hears: all_reduce float32 [1] sum: rank 1 has ended and will not come" in output, output
