"""The constants of docs/distributed.md, "From 2 to 1,024 ranks": the store with many ranks, and all_reduce of two.

The ranks that meet are connections of one process here: only what the store does for each is measured. all_reduce runs
on two processes of this machine.

    python benchmarks/bench_scale.py
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import sides

from ox.clock import SYSTEM
from ox.distributed import client, frames, rendezvous

RANKS = (2, 64, 1024)
LINES = 20_000  # of MPI's process manager interface
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OX_NUM_THREADS"), "1")
SIZES = {"4 KiB": 1 << 10, "1 MiB": 1 << 18, "64 MiB": 1 << 24}


class StoreProcess:
    """A store, as rank 0 starts it."""

    def __init__(self, size: int) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=socket.SOMAXCONN)
        self.port = int(listener.getsockname()[1])
        words = [sys.executable, "-IS", rendezvous.STORE_PROCESS, str(listener.fileno()), str(size)]
        self.process = subprocess.Popen(words, pass_fds=[listener.fileno()])
        listener.close()

    def connect(self, rank: int, size: int, kind: str) -> socket.socket:
        hello = {
            "kind": kind, "rank": rank, "size": size, "limit": 600.0, "age": 0.0, "machine": f"m{rank}", "attempt": "",
            "place": f"process {rank} on node", "same": {"WORLD_SIZE": str(size), "their script": "x.py"},
        }  # fmt: skip
        while True:
            try:
                return client.connect("127.0.0.1", self.port, hello, SYSTEM.now() + 600, "bench", SYSTEM)
            except (OSError, client.NoStore):
                sleep(0.01)

    @property
    def processor_time(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> float:
        """Resident MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def store_side() -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for size in RANKS:
        store = StoreProcess(size)
        began = perf_counter()
        ranks = [store.connect(rank, size, "rank") for rank in range(size)]
        for rank in ranks:
            assert client.receive(rank)["ready"]
        found[f"store: all of {size} ranks have met, ms"] = 1e3 * (perf_counter() - began)
        used = store.processor_time
        beat = frames.frame({"idle": 1.0, "waits": 0.0, "operation": "all_reduce float32 [1000] sum"})
        count = max(1, 20_000 // size)
        for _ in range(count):
            for rank in ranks:
                rank.sendall(beat)
        sleep(1.0)  # until the store has read them
        found[f"store: a heartbeat of {size} ranks, µs of its processor"] = (
            1e6 * (store.processor_time - used) / (count * size)
        )
        manager = store.connect(0, size, "mpi")
        stream = manager.makefile("rwb")
        stream.write(b"cmd=put kvsname=x key=a value=" + b"v" * 100 + b"\n")
        stream.flush()
        stream.readline()
        began = perf_counter()
        for _ in range(LINES):
            stream.write(b"cmd=get kvsname=x key=a\n")
            stream.flush()
            stream.readline()
        found[f"store: a line of MPI with {size} ranks, µs"] = 1e6 * (perf_counter() - began) / LINES
        found[f"store: memory with {size} ranks, MiB"] = store.memory
        for each in (manager, *ranks):
            each.close()
        store.process.wait(30)
    return found


def all_reduce_side() -> dict[str, float | str]:
    words = [sys.executable, "-m", "ox_cli", "launch", "--nproc", "2", "--", __file__, "--rank"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, **THREADS}, timeout=300)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def rank_of_two() -> None:
    import ox
    from ox import distributed as dist

    dist.init_process_group()
    found: dict[str, Any] = {}
    for name, count in SIZES.items():
        x = ox.ones(count)
        times = []
        for _ in range(200 if count < 1 << 20 else 15):
            dist.barrier()
            began = perf_counter()
            dist.all_reduce(x)
            times.append(perf_counter() - began)
            x.fill_(1.0)
        found[f"all_reduce of {name}, 2 ranks, ms"] = 1e3 * median(times)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    found["resident memory of a rank, MiB"] = pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "--rank" in sys.argv:
        rank_of_two()
    else:
        sides.main({"ox": lambda: {**store_side(), **all_reduce_side()}}, unit="as said")
