"""Runs a piece of code on several real MPI processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import forked
import pytest

MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
needs_mpi = pytest.mark.skipif(
    find_spec("mpi4py") is None or MPIEXEC is None, reason="mpi4py or mpiexec is not installed: the extra [mpi]"
)

# One thread a rank: several ranks share a small machine.
THREADS = forked.THREADS
HEAD = """
import sys, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "autocast to b?float16 does not make this CPU faster", UserWarning)
import numpy as np
import ox
from ox import nn
import ox.distributed as dist
dist.init_process_group(timeout=300)
rank, world = dist.get_rank(), dist.get_world_size()
"""
TAIL = """
dist.destroy_process_group()
print(f"rank {rank} is done", flush=True)
"""


def run(code: str, ranks: int, folder: Path, *, limit: float = 600, bare: bool = False, check: bool = True) -> str:
    """The ranks' output. `code` finds `dist`, `rank` and `world` ready, unless `bare`, and has `limit` seconds.

    With `check`, every rank must come to the end. Unless that or `bare` says how, `ox launch` starts the ranks, all in
    processes that are forked; mpiexec starts the others.
    """
    assert MPIEXEC is not None
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code) if bare else HEAD + textwrap.dedent(code) + TAIL)
    command = [MPIEXEC, "-n", str(ranks), sys.executable, str(script)]
    if check and not bare:
        command = [sys.executable, "-m", "ox_cli", "launch", "--nproc", str(ranks), "--", str(script)]
    process = forked.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **THREADS},
        start_new_session=True, cwd=folder,
    )  # fmt: skip
    try:
        out, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        pytest.fail(f"{ranks} ranks hung for {limit} s:\n{out[-4000:]}")
    if check:
        done = set(re.findall(r"rank (\d+) is done", out))  # lines of several ranks may run into each other
        assert process.returncode == 0 and len(done) >= (0 if bare else ranks), out[-6000:]
    return out
