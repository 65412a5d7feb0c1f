"""Where the CPU time of a request goes, by thread of `ox serve` and in the load generator.

    python benchmarks/bench_serve_threads.py [--model cnn] [--cores 2] [--connections 32] [--flags "--max-rows 16"]

Beside it stands what ONNX Runtime takes for the same rows in process, without a server. CPU time is what a thread ran;
the rest of the cores' time, shown as idle, is waiting and what other programs took.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from serving import inprocess, models
from serving.load import put
from serving.peers import OX, PEERS, ROOT, request
from serving.process import serving

TICKS = os.sysconf("SC_CLK_TCK")
Times = dict[int, tuple[float, float]]  # by thread: seconds in Python and C, and in the system


def thread_times(pid: int) -> Times:
    found: Times = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        found[int(folder.name)] = int(fields[11]) / TICKS, int(fields[12]) / TICKS
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cnn", choices=list(models.SHAPES))
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--flags", default="", help="more of ox serve")
    options = parser.parse_args()
    folder, peer = ROOT / "build" / "bench-serve", replace(PEERS[OX], flags=tuple(options.flags.split()))
    models.write(folder)
    file = folder / f"{options.model}.onnx"
    bare = inprocess.rates(file, options.cores, 6.0)
    row = np.load(file.with_suffix(".npz"))["x"]
    with serving(peer, ROOT / "build" / "peers", file, options.cores) as running:
        asked, pid = request("binary", options.model, row, running.port), running.process.pid
        put(asked, running.port, options.connections, 1, False)
        before, load = thread_times(pid), os.times()
        figures = put(asked, running.port, options.connections, options.seconds, True)
        after, loaded = thread_times(pid), os.times()
    count = figures.rate * options.seconds
    share = f"{100 * figures.rate / bare:.0f} % of ONNX Runtime in process"
    print(f"{options.model}, {options.cores} cores, {options.connections} connections: {figures.rate:,.0f} requests/s, "
          f"{share} ({bare:,.0f}, {1e6 * options.cores / bare:.0f} us of a core)")  # fmt: skip
    rows: list[tuple[str, float, float]] = []
    for thread, now in after.items():
        if thread in before:
            user, system = (b - a for a, b in zip(before[thread], now, strict=True))
            rows.append(("event loop" if thread == pid else f"thread {thread}", user, system))
    user, system = loaded.children_user - load.children_user, loaded.children_system - load.children_system
    rows.append(("load generator", user, system))
    idle = options.cores * options.seconds - sum(user + system for _, user, system in rows)
    print("us per request:")
    for name, user, system in rows:
        if user + system > 0.01 * options.seconds:
            print(f"  {name:16} {1e6 * user / count:6.1f} and {1e6 * system / count:5.1f} in the system")
    print(f"  {'idle':16} {1e6 * idle / count:6.1f}")


if __name__ == "__main__":
    main()
