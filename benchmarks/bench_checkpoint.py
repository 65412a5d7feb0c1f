"""How long training stalls for a checkpoint of about 100 MB, written in the background or synchronously.

The stall is the time that `save` takes; the steps that follow compute while the thread writes, and what they lose to it
is told as well. Memory is what the process has at most, above what it had before the first checkpoint.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import sides

import ox
from ox import nn, train
from ox.train.run import checkpoint, checkpoint_writer

WIDTH, COUNT = 1670, 3  # 3 × 1670² numbers and two moments of each: 100 MB
CHECKPOINTS, STEPS = 8, 4


def trainer() -> train.Trainer:
    ox.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(COUNT)))
    x = ox.randn(64, WIDTH).numpy()
    made = train.Trainer(model, nn.MSELoss(), None, (x, x), (x, x), batch_size=16)
    made.step((ox.tensor(x[:16]), ox.tensor(x[:16])))
    return made


def measure(background: bool) -> dict[str, float]:
    made, stalls, copied, behind, quiet = trainer(), [], [], [], []
    x = ox.randn(16, WIDTH)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DISK")) as folder:
        (Path(folder) / "checkpoints").mkdir()
        run = train.Run(Path(folder), {})
        arrays = [x.array for p in made.model.parameters() for x in (p, p, p)]  # as much as weights and moments
        copies = [x.copy() for x in arrays]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with checkpoint_writer.Checkpoints(run) as kept:
            for _ in range(CHECKPOINTS):
                quiet.append(_steps(made, x))
                began = time.perf_counter()
                if background:
                    kept.save(made.state_dict(), best=True)
                else:
                    checkpoint.save(run, made.state_dict(), best=True)
                stalls.append(time.perf_counter() - began)
                behind.append(_steps(made, x))
                kept.wait()
                began = time.perf_counter()
                for copy, array in zip(copies, arrays, strict=True):
                    np.copyto(copy, array)
                copied.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "stall of the first, ms": 1e3 * stalls[0],
        "stall, ms": 1e3 * statistics.median(stalls[1:]),
        "a bare copy of as much, ms": 1e3 * statistics.median(copied),
        f"{STEPS} steps after it, ms": 1e3 * statistics.median(behind[1:]),
        f"{STEPS} steps alone, ms": 1e3 * statistics.median(quiet[1:]),
        "memory, MB": (peak - before) / 1024,
    }


def _steps(made: train.Trainer, x: ox.Tensor) -> float:
    began = time.perf_counter()
    for _ in range(STEPS):
        made.step((x, x))
    return time.perf_counter() - began


def background() -> dict[str, float]:
    return measure(True)


def at_once() -> dict[str, float]:
    return measure(False)


if __name__ == "__main__":
    sides.main({"background": background, "at once": at_once}, unit="ms and MB")
