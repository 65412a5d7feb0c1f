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


def host_cuda_environment(folder: Path) -> dict[str, str]:
    environment = {**environment_with(HERE, CUDA_PACKAGES), **THREADS, "TMPDIR": str(folder)}
    code = "from host_cuda import build; print(build.missing() or '')"
    asked = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    if reason := asked.stdout.strip():
        pytest.skip(reason)
    return environment


def output_of(folder: Path, *arguments: str) -> str:
    """What both ranks print."""
    path = str(HERE / "nccl_ranks.py")
    program = f"import host_cuda, runpy; host_cuda.install(); runpy.run_path({path!r}, run_name='__main__')"
    words = [str(MPIEXEC), "-n", "2", sys.executable, "-c", program, *arguments]
    return run(words, host_cuda_environment(folder), folder)


def run(words: list[str], environment: dict[str, str], folder: Path) -> str:
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=300)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    return output_of(tmp_path_factory.mktemp("nccl"))


CHECKS = [
    "reductions",
    "movements",
    "training",
    "other_steps",
    "waiting",
    "missing_gradients",
    "groups_of_the_host",
    "an_error_of_nccl",
]


@pytest.mark.parametrize("check", CHECKS)
def test_on_both_ranks(output: str, check: str) -> None:
    for rank in (0, 1):
        assert f"{check} of rank {rank} held" in output, output


@pytest.fixture
def two_devices(tmp_path: Path) -> dict[str, str]:
    """The environment of programs, and of those that they start, with two devices."""
    (tmp_path / "sitecustomize.py").write_text("import host_cuda\nhost_cuda.install()\n")
    found = host_cuda_environment(tmp_path)
    path = os.pathsep.join([str(tmp_path), found["PYTHONPATH"]])
    return {**found, "PYTHONPATH": path, "HOST_CUDA_DEVICES": "2"}


RECIPE = """
from ox import nn, rand
from ox.data import TensorDataset

defaults = {"epochs": 1, "batch_size": 8, "lr": 0.1}
loss = nn.CrossEntropyLoss()


def data():
    points = rand(32, 3)
    return tuple(TensorDataset(points, points[:, 0].gt(0.5).long()) for _ in range(3))


def model():
    return nn.Linear(3, 2)
"""


def train(arguments: str, environment: dict[str, str], folder: Path) -> str:
    (folder / "points.py").write_text(RECIPE)
    return run([sys.executable, "-m", "ox_cli", "train", "points.py", *arguments.split()], environment, folder)


@pytest.mark.parametrize("arguments", ["--device cuda --nproc 2", "--nproc 2"])
def test_a_run_of_two_ranks(two_devices: dict[str, str], tmp_path: Path, arguments: str) -> None:
    """On CPUs also where there are GPUs: no NCCL, which has no tensors of the host."""
    output = train(arguments, two_devices, tmp_path)
    place = "cuda" if "cuda" in arguments else "cpu"
    assert f"2 processes · {place} (" in output and "best on validation: epoch 1" in output, output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--device cuda --nproc 3", ["more ranks than GPUs on this machine", "expected at most 2 ranks", "got      3"]),
        ("--device auto --nproc 3", ["more ranks than GPUs on this machine"]),
        ("--device cuda:1 --nproc 2", ["each rank has a GPU of its own", "got      cuda:1 for 2 ranks"]),
        ("--device cuda:7", ["there is no cuda:7", "expected cuda:0 to cuda:1"]),
    ],
)
def test_one_error_before_anything_starts(
    two_devices: dict[str, str], tmp_path: Path, arguments: str, words: list[str]
) -> None:
    output = train(arguments, two_devices, tmp_path)
    assert all(word in output for word in words) and output.count("Error") == 1, output
    assert "rank 0" not in output and not (tmp_path / "runs").exists()


def test_more_ranks_of_a_script_than_devices(two_devices: dict[str, str], tmp_path: Path) -> None:
    """Each rank says so, and none waits for the others."""
    (tmp_path / "script.py").write_text("import ox.distributed as dist\ndist.init_process_group('nccl')\n")
    output = run([sys.executable, "-m", "ox_cli", "launch", "--nproc", "3", "--", "script.py"], two_devices, tmp_path)
    assert "more ranks than GPUs on this machine" in output and "at most 2 ranks" in output, output


def test_a_rank_that_has_ended_is_named_and_not_waited_for(tmp_path: Path) -> None:
    output = output_of(tmp_path, "dead")
    assert "rank 0 hears: all_reduce float32 [1] sum: rank 1 has ended and will not come" in output, output
