"""One script on two processes, with PyTorch over gloo and with ox over MPI: the same gradients, weights and buffers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import THREADS, needs_mpi, run

pytest.importorskip("torch", reason="PyTorch is the other side of this comparison")
pytestmark = needs_mpi

SCRIPT = """
import json, sys, warnings
import numpy as np

LIBRARY
nn, F = T.nn, T.nn.functional
from LIB.nn.parallel import DistributedDataParallel as DDP
from LIB.distributed.optim import ZeroRedundancyOptimizer
import LIB.distributed as dist
rank, world = dist.get_rank(), dist.get_world_size()
random = np.random.default_rng(11)
log = []

def fill(module, seed):
    # other weights on every rank: those of rank 0 count
    values = np.random.default_rng(seed + rank)
    with T.no_grad():
        for p in module.parameters():
            p.copy_(T.from_numpy(values.normal(size=tuple(p.shape)).astype("f") * 0.3))
    return module

def batch(size):
    return T.from_numpy(random.normal(size=(size, 6)).astype("f")), T.from_numpy(random.integers(0, 3, size))

def note(model):
    log.append([None if p.grad is None else p.grad.tolist() for p in model.parameters()])
    log.append([t.tolist() for t in model.state_dict().values()])

def net():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

# plain steps with accumulation, on batches of different sizes, BatchNorm's buffers from rank 0
for view in (False, True):
    ddp = DDP(fill(net(), 1), gradient_as_bucket_view=view, bucket_cap_mb=0.0001)
    log.append(list(ddp.state_dict()))
    optimizer = T.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad()
        for k in range(2):
            x, y = batch(5)
            x, y = x[: 4 + rank], y[: 4 + rank]
            if k == 0:
                with ddp.no_sync():
                    F.cross_entropy(ddp(x), y).backward()
            else:
                F.cross_entropy(ddp(x), y).backward()
        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        note(ddp)
    ddp.eval()
    log.append(ddp(x).tolist())

# parameters that one rank or nobody uses
class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.idle = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 3)
    def forward(self, x, way):
        return (self.left, self.right)[way](x)

ddp = DDP(fill(Branches(), 2), find_unused_parameters=True)
for step in range(3):
    x, y = batch(4)
    if step == 1:
        ddp.zero_grad()
    F.cross_entropy(ddp(x, rank if step < 2 else 0), y).backward()
    note(ddp)

# ranks with different numbers of batches
for divide in (True, False):
    ddp = DDP(fill(net()[:1], 3))
    optimizer = T.optim.SGD(ddp.parameters(), lr=0.1)
    with ddp.join(divide_by_initial_world_size=divide):
        for k in range(2 + rank):
            x, y = batch(3)
            optimizer.zero_grad()
            F.cross_entropy(ddp(x), y % 3).backward()
            optimizer.step()
    log.append([t.tolist() for t in ddp.state_dict().values()])

# state of an optimizer, dealt out by the same rule
model = fill(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), 4)  # a bias before BatchNorm moves by noise
for p in model.parameters():
    dist.broadcast(p.detach(), 0)
zero = ZeroRedundancyOptimizer(model.parameters(), T.optim.Adam, lr=0.01)
for step in range(3):
    x, y = batch(4)
    zero.zero_grad()
    F.cross_entropy(model(x), y).backward()
    zero.step()
log.append([t.tolist() for t in model.state_dict().values()])
zero.consolidate_state_dict(to=0)
if rank == 0:
    state = zero.state_dict()["state"]
    log.append([[k, name, float(v.sum())] for k in sorted(state) for name, v in sorted(state[k].items())])
open(f"LIB{rank}.json", "w").write(json.dumps(log))
dist.barrier()
dist.destroy_process_group()
"""
OX = "import ox as T\nT.distributed.init_process_group(timeout=60)"
TORCH = 'import torch as T\nT.set_num_threads(1)\nT.distributed.init_process_group("gloo")'


def of_torch(folder: Path) -> None:
    script = folder / "of_torch.py"
    script.write_text(SCRIPT.replace("LIBRARY", TORCH).replace("LIB", "torch"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**os.environ, **THREADS, **meeting, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert not any(rank.returncode for rank in ranks), "\n".join(outputs)


def same(a: object, b: object, path: str = "") -> None:
    if isinstance(a, list) and isinstance(b, list) and not all(isinstance(x, (int, float)) for x in a):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}/{i}")
    elif isinstance(a, (list, float, int)) and not isinstance(a, bool):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=path)  # type: ignore[arg-type]
    else:
        assert a == b, path


@pytest.mark.filterwarnings("ignore")
def test_two_processes(tmp_path: Path) -> None:
    of_torch(tmp_path)
    run(SCRIPT.replace("LIBRARY", OX).replace("LIB", "ox"), 2, tmp_path, bare=True)
    for rank in range(2):
        theirs, ours = (json.loads((tmp_path / f"{side}{rank}.json").read_text()) for side in ("torch", "ox"))
        assert len(theirs) > 20
        same(ours, theirs)
