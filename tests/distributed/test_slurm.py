"""A real Slurm (Debian: slurmctld, slurmd, slurm-client) with two nodes on this machine starts ranks by plain srun."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import THREADS, needs_mpi
from waiting import wait_until

from ox.distributed.ports import free_port

PROGRAMS = ("slurmctld", "slurmd", "slurmstepd", "srun", "sinfo")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
pytestmark = [
    needs_mpi,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (Debian: slurm-wlm)"),
]
# Both names lead to this machine.
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus}
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus}
PartitionName=all Nodes=ALL Default=YES OverSubscribe=YES
"""
CODE = """
import os
import ox, ox.distributed as dist
dist.init_process_group(timeout=60)
rank = dist.get_rank()
x = ox.ones(3) * (rank + 1)
dist.all_reduce(x)
print("sum", x.tolist(), "of", rank, flush=True)
if rank == 1 and KILLED:
    os.kill(os.getpid(), 9)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which srun finds the cluster."""
    folder = tmp_path_factory.mktemp("slurm")
    host = socket.gethostname()
    ports = set[int]()
    while len(ports) < 3:
        ports.add(free_port())
    config = CONFIG.format(host=host, ports=list(ports), folder=folder, user=getpass.getuser(), cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(config)
    (folder / "state").mkdir()
    env = {**os.environ, **THREADS, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    commands = [["slurmctld", "-D"], ["slurmd", "-D", "-N", host], ["slurmd", "-D", "-N", "localhost"]]
    log = (folder / "log").open("w")
    daemons = [subprocess.Popen(words, env=env, stdout=log, stderr=log) for words in commands]
    try:
        words = ["sinfo", "-N", "-h", "-o", "%T"]

        def idle() -> bool:
            assert all(daemon.poll() is None for daemon in daemons)
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
            return done.stdout.split() == ["idle", "idle"]

        try:
            wait_until(idle)
        except AssertionError:
            pytest.fail(f"Slurm did not start: {(folder / 'log').read_text()[-3000:]}")
        yield env
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:  # a busy machine
                daemon.kill()
                daemon.wait()
        log.close()


def srun(env: dict[str, str], folder: Path, *words: str, killed: bool = False) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(CODE.replace("KILLED", str(killed)))
    return subprocess.run(
        ["srun", *words, sys.executable, "script.py"], cwd=folder, env=env, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("words", [["-N2", "-n2"], ["-N1", "-n2", "--overcommit"], ["--mpi=pmi2", "-N2", "-n2"]])
def test_srun(words: list[str], slurm: dict[str, str], tmp_path: Path) -> None:
    done = srun(slurm, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"sum [3.0, 3.0, 3.0] of {rank}" for rank in range(2)]


def test_a_killed_rank(slurm: dict[str, str], tmp_path: Path) -> None:
    done = srun(slurm, tmp_path, "-N2", "-n2", killed=True)
    assert done.returncode == 137
    assert "ox: rank 1 ended without the end of the program; rank 0 ends, too" in done.stderr
