"""PyTorch's torchrun starts a script of ox: it sets the variables, and occupies MASTER_PORT with a store of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import THREADS, needs_mpi

pytest.importorskip("torch", reason="torchrun is PyTorch's")
pytestmark = needs_mpi

SCRIPT = """
import os, time
import ox, ox.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
x = ox.ones(3) * (rank + 1)
dist.all_reduce(x)
# a file each, for the ranks' output mixes within a line
open(f"{rank} of attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", "w").write(str(x.tolist()))
if rank == 1 and FAILS and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os.kill(os.getpid(), 9)
dist.destroy_process_group()
"""


def torchrun(folder: Path, *words: str, fails: bool = False) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(SCRIPT.replace("FAILS", str(fails)))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "MPI", "SLURM"))}
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *words, "script.py"], env={**clean, **THREADS}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder,
    )  # fmt: skip


def output(process: subprocess.Popen[str]) -> str:
    try:
        out, _ = process.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        process.terminate()
        pytest.fail(f"torchrun hung: {process.communicate()[0][-4000:]}")
    assert process.returncode == 0, out[-4000:]
    return out


def check(folder: Path, attempt: int) -> None:
    for rank in range(2):
        assert (folder / f"{rank} of attempt {attempt}").read_text() == "[3.0, 3.0, 3.0]"


def test_one_node(tmp_path: Path) -> None:
    output(torchrun(tmp_path, "--standalone", "--nproc-per-node", "2"))
    check(tmp_path, attempt=0)


@pytest.mark.slow
def test_a_killed_rank_and_a_restart(tmp_path: Path) -> None:
    out = output(torchrun(tmp_path, "--standalone", "--max-restarts", "1", "--nproc-per-node", "2", fails=True))
    check(tmp_path, attempt=1)
    assert "exitcode: -9) local_rank: 1" in out, "torchrun names the rank that was killed"


@pytest.mark.slow
def test_two_nodes(tmp_path: Path) -> None:
    from test_rendezvous import free_port

    meeting = ("--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "7")
    end = ("--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    nodes = [torchrun(tmp_path, *meeting, *end) for _ in range(2)]
    for node in nodes:
        output(node)
    check(tmp_path, attempt=0)
