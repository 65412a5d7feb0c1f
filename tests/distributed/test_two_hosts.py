"""Ranks on two hosts: two network namespaces of Linux, with names, processes, shared memory and addresses of their own.

As in a container, a rank is process 1 there: with rank 0 ends the store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import THREADS, needs_mpi

from ox.distributed import frames

NAMESPACE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
# Two hosts with a cable between them. All of it ends with the last process inside.
HOSTS = """
set -e
mount -t tmpfs none /run
ip netns add a
ip netns add b
ip link add wire-a netns a type veth peer name wire-b netns b
ip -n a addr add 10.77.0.1/24 dev wire-a
ip -n b addr add 10.77.0.2/24 dev wire-b
for host in a b; do ip -n $host link set lo up; ip -n $host link set wire-$host up; done
# An address is not used before the system knows that nobody else has it.
for host in a b; do
    while ip -n $host addr show dev wire-$host | grep -Eq "tentative|state DOWN"; do sleep 0.1; done
done
host() {
    RANK=$2 ip netns exec $1 unshare --uts --ipc --mount --pid --fork --mount-proc sh -c \
        "hostname host-$1; mount -t tmpfs none /dev/shm; exec $PYTHON script.py" >out.$2 2>&1
}
host a 0 & one=$!
host b 1 & two=$!
CUT
code=0
wait $one || code=$?
wait $two || code=$?
exit $code
"""
CODE = """
import os, socket, time
import ox, ox.distributed as dist
dist.init_process_group(timeout=120)
x = ox.ones(300_000) * (dist.get_rank() + 1)
dist.all_reduce(x)
print("sum", x[-1].item(), "on", socket.gethostname(), flush=True)
AFTER
dist.destroy_process_group()
"""


def no_namespaces() -> str | None:
    """Why there can be no hosts here; None where there can."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "the commands ip and unshare are not installed"
    words = [*NAMESPACE, "sh", "-c", "mount -t tmpfs none /run && ip netns add a && ip netns exec a true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"no network namespaces here: {done.stderr.strip()}" if done.returncode else None


def on_two_hosts(folder: Path, after: str = "", cut: str = "", heartbeat: int = 60) -> tuple[int, list[str]]:
    """The exit code of the first rank that failed, and the output of each."""
    if (reason := no_namespaces()) is not None:
        pytest.skip(reason)
    (folder / "script.py").write_text(CODE.replace("AFTER", after))
    names = ("PMI", "MPI", "SLURM", "OMPI", "TORCHELASTIC")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    meeting = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "2", "PYTHON": sys.executable}
    meeting[frames.HEARTBEAT] = str(heartbeat)
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", HOSTS.replace("CUT", cut)], cwd=folder, env={**clean, **THREADS, **meeting},
        timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, [(folder / f"out.{rank}").read_text() for rank in range(2)]


@needs_mpi
@pytest.mark.slow
def test_two_hosts(tmp_path: Path) -> None:
    code, outs = on_two_hosts(tmp_path)
    assert code == 0, "\n".join(outs)
    assert outs == ["sum 3.0 on host-a\n", "sum 3.0 on host-b\n"]


@needs_mpi
@pytest.mark.slow
def test_rank_0_waits_with_its_container_for_the_others(tmp_path: Path) -> None:
    after = (
        "from ox.distributed import mpi\nend = mpi.end\n"
        "if dist.get_rank() == 1: mpi.end = lambda: [end(), time.sleep(3)]"
    )
    code, outs = on_two_hosts(tmp_path, after)
    assert code == 0, "\n".join(outs)
    assert outs == ["sum 3.0 on host-a\n", "sum 3.0 on host-b\n"]


@needs_mpi
@pytest.mark.slow
def test_a_cut_cable(tmp_path: Path) -> None:
    """Both sides end, though they wait in no operation."""
    cut = "until test -e ready; do sleep 0.1; done; ip -n b link set wire-b down"
    code, outs = on_two_hosts(
        tmp_path, "dist.barrier(); open('ready', 'w').close(); time.sleep(600)", cut, heartbeat=10
    )
    assert code == 1, outs
    assert "ox: rank 1 (process 1 on host-b) hangs or is cut off: no heartbeat for" in outs[0]
    assert "ox: the store of the ranks, at rank 0, has gone" in outs[1]
