"""`ox launch` on three hosts, network namespaces of Linux, one of which is cut off from the others for a while."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import THREADS, needs_mpi
from test_rendezvous import LAUNCHERS
from test_two_hosts import NAMESPACE, no_namespaces

import ox
from ox import tolerance

# Three hosts at a switch. All of it ends with the last process inside.
HOSTS = """
set -e
mount -t tmpfs none /run
ip link add switch type bridge
ip link set switch up
number=0
for host in a b c; do
    number=$((number + 1))
    ip netns add $host
    ip link add wire-$host type veth peer name eth0 netns $host
    ip link set wire-$host master switch up
    ip -n $host link set lo up
    ip -n $host addr add 10.77.0.$number/24 dev eth0
    ip -n $host link set eth0 up
done
for host in a b c; do
    while ip -n $host addr show dev eth0 | grep -Eq "tentative|state DOWN"; do sleep 0.1; done
done
host() {
    ip netns exec $1 unshare --uts --ipc --mount --pid --fork --kill-child --mount-proc sh -c \
        "hostname host-$1; mount -t tmpfs none /dev/shm; exec $LAUNCH" >out.$1 2>&1
}
host a & one=$!
host b & two=$!
host c & three=$!
until test -e ready; do sleep 0.1; done
ip link set wire-c down
sleep $CUT
ip link set wire-c up
touch healed
code=0
wait $one || code=$?
wait $two || code=$?
wait $three || code=$?
exit $code
"""
TRAINS = """
import time
from pathlib import Path
import numpy as np
import ox, ox.distributed as dist
from ox import nn
from ox.train import Trainer

dist.init_process_group()
world = dist.get_world_size()
ox.manual_seed(0)
r = np.random.default_rng(0)
x = r.standard_normal((120, 6)).astype(np.float32)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))

def step(model, batch):
    if trainer.progress.step == 8 and world == 3:
        Path("ready").touch()
    if trainer.progress.step >= 8 and not (Path("healed").exists() and world == 3):
        time.sleep(0.3)
    out = model(batch[0])
    return nn.functional.cross_entropy(out, batch[1]), out

trainer = Trainer(model, None, None, (x, (x.sum(1) > 0).astype(np.int64)), None, step=step, epochs=20, batch_size=10,
                  checkpoint_every=0.5)
trainer.fit("run", resume=True)
print("trained on", world, flush=True)
dist.destroy_process_group()
"""


OX_LAUNCH = [sys.executable, "-m", "ox_cli", "launch"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)} | THREADS


def weights(folder: Path) -> dict[str, np.ndarray]:
    state = ox.load(folder / "run/checkpoints/last.safetensors")
    assert state["progress"]["step"] == 80
    return {name: value.array for name, value in state["model"].items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The weights of three ranks on one host; skips where there can be no three hosts."""
    if (reason := no_namespaces()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("whole")
    (folder / "train.py").write_text(TRAINS)
    (folder / "healed").touch()
    alone = subprocess.run([*OX_LAUNCH, "--nproc", "3", "--", "train.py"], cwd=folder, env=ENVIRONMENT,
                           capture_output=True, text=True, timeout=120)  # fmt: skip
    assert alone.returncode == 0, alone.stderr
    return weights(folder)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("cut_for", "heartbeat"), [(10, 60), (10, 5)])
def test_one_of_three_hosts_is_cut_off(
    cut_for: int, heartbeat: int, whole: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """Within the time limit of the heartbeat, nothing happens: the ranks wait, and go on. Beyond it, the others go on
    without that host, until it is back."""
    (tmp_path / "train.py").write_text(TRAINS)
    words = ["--nnodes", "2:3", "--nproc", "1", "--rdzv-endpoint", "10.77.0.1:29400", "--max-restarts", "3"]
    launch = " ".join([*OX_LAUNCH, *words, "--heartbeat-timeout", str(heartbeat), "--", "train.py"])
    env = {**ENVIRONMENT, "LAUNCH": launch, "CUT": str(cut_for)}
    done = subprocess.run([*NAMESPACE, "sh", "-c", HOSTS], cwd=tmp_path, env=env, timeout=180, check=False)
    outs = {host: (tmp_path / f"out.{host}").read_text() for host in "abc"}
    assert done.returncode == 0 and all("trained on 3" in out for out in outs.values()), outs
    one = weights(tmp_path)
    if heartbeat > cut_for:
        assert not any("restarting" in out for out in outs.values()), outs
        assert all(np.array_equal(value, whole[name]) for name, value in one.items())
    else:
        noticed = r"on host-c(\) hangs or is cut off| with rank \d is lost): no heartbeat for \d+ s"
        assert re.search(noticed, outs["a"]) and "restarting all ranks (1 of 3)" in outs["b"], outs
        assert "has gone · waiting for it" in outs["c"] and "on host-c joins" in outs["a"], outs
        assert all(tolerance.compare(value, whole[name]).ok for name, value in one.items())
