"""A training step on two processes of one thread each: ox over MPI beside PyTorch's DDP on gloo, and memory a rank.

Every figure is of the slower rank. "alone" is the same step in the same two processes at the same time without
DistributedDataParallel, so the difference is what the exchange costs on a machine that is busy computing.

    python benchmarks/bench_ddp.py
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import sides

RANKS, STEPS = 2, int(os.environ.get("STEPS", "30"))
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def models(nn: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Models of both libraries, with the shape of a rank's batch."""

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.head = nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.body(x).mean(1))

    def cnn() -> Any:
        block = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        block += [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*block, nn.Flatten(), nn.Linear(64 * 8 * 8, 256), nn.ReLU(), nn.Linear(256, 10))

    def mlp() -> Any:
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

    def wide() -> Any:
        return nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))

    return {
        "mlp 784-512-512-10, batch 64": (mlp, (64, 784)),
        "mlp 784-2048-2048-10, batch 64": (wide, (64, 784)),
        "cnn 32-64, batch 32": (cnn, (32, 3, 32, 32)),
        "transformer 4 x 256, batch 8 x 128": (Tokens, (8, 128, 256)),
    }


def measured(step: Any, barrier: Any) -> float:
    """Milliseconds a step."""
    for _ in range(5):
        step()
    times = []
    for _ in range(STEPS):
        barrier()
        start = perf_counter()
        step()
        times.append(perf_counter() - start)
    return 1e3 * median(times)


def steps(nn: Any, optim: Any, tensors: Any, wrap: Any, barrier: Any) -> dict[str, float]:
    import numpy as np

    found = {}
    for name, (make, shape) in models(nn).items():
        for kind in ("ddp", "alone"):
            model = make()
            model = wrap(model) if kind == "ddp" else model
            optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            random = np.random.default_rng(0)
            x, y = tensors(random.normal(size=shape).astype("float32"), random.integers(0, 10, shape[0]))
            loss = nn.CrossEntropyLoss()

            def step(model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y, loss: Any = loss) -> None:
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()

            found[f"{kind}: {name}"] = measured(step, barrier)
    return found


def rank_of_ox() -> None:
    import ox
    import ox.distributed as dist
    from ox import nn
    from ox.nn.parallel import DistributedDataParallel

    ox.set_num_threads(1)
    dist.init_process_group(timeout=120)

    def tensors(x: Any, y: Any) -> tuple[Any, Any]:
        return ox.from_numpy(x), ox.from_numpy(y)

    found = steps(nn, ox.optim, tensors, DistributedDataParallel, dist.barrier)
    everybody: list[Any] = [None] * RANKS
    dist.all_gather_object(everybody, found)
    tell(dist.get_rank(), everybody)
    dist.destroy_process_group()


def rank_of_torch() -> None:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    def tensors(x: Any, y: Any) -> tuple[Any, Any]:
        return torch.from_numpy(x), torch.from_numpy(y)

    found = steps(nn, torch.optim, tensors, DistributedDataParallel, dist.barrier)
    everybody: list[Any] = [None] * RANKS
    dist.all_gather_object(everybody, found)
    tell(dist.get_rank(), everybody)
    dist.destroy_process_group()


def tell(rank: int, everybody: list[dict[str, float]]) -> None:
    if rank == 0:
        print(json.dumps({name: max(each[name] for each in everybody) for name in everybody[0]}), flush=True)


def rank_with_memory(zero: bool) -> None:
    """The resident memory that a model of 17 million parameters (64 MiB) and Adam add to a rank, in MiB."""
    import ox
    import ox.distributed as dist
    from ox import nn
    from ox.optim import Adam, ZeroRedundancyOptimizer

    dist.init_process_group(timeout=120)
    x = ox.ones(4, 1024)
    nn.Linear(1024, 1024)(x).sum().backward()
    before = resident()
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(16)]), gradient_as_bucket_view=True
    )
    optimizer = ZeroRedundancyOptimizer(model.parameters(), Adam) if zero else Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    everybody: list[Any] = [None] * RANKS
    key = "zero" if zero else "plain"
    dist.all_gather_object(everybody, {f"resident MiB a rank, Adam, {key}": resident() - before})
    tell(dist.get_rank(), everybody)
    dist.destroy_process_group()


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def through_mpi(*rank: str) -> dict[str, float]:
    mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert mpiexec is not None, "mpiexec is not installed: the extra [mpi]"
    command = [mpiexec, "-n", str(RANKS), sys.executable, __file__, "--rank", *rank]
    return last_line(subprocess.run(command, env={**os.environ, **THREADS}, stdout=subprocess.PIPE, check=True).stdout)


def last_line(output: bytes) -> dict[str, float]:
    return dict(json.loads(output.decode().splitlines()[-1]))


def ox_side() -> dict[str, float]:
    return through_mpi("ox") | through_mpi("plain") | through_mpi("zero")


def torch_side() -> dict[str, float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(RANKS)}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", "torch"],
            env={**os.environ, **THREADS, **meeting, "RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(RANKS)
    ]
    outputs = [each.communicate()[0] for each in ranks]
    return last_line(outputs[0])


if __name__ == "__main__":
    if "--rank" in sys.argv:
        {
            "ox": rank_of_ox,
            "torch": rank_of_torch,
            "plain": lambda: rank_with_memory(False),
            "zero": lambda: rank_with_memory(True),
        }[sys.argv[-1]]()
    else:
        sides.main({"ox": ox_side, "torch": torch_side}, unit="ms a step, MiB")
