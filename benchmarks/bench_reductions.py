"""CPU time and error of sums and their like over every kind of axis and layout: 17 shapes.

`python benchmarks/bench_reductions.py FILE` writes the figures as JSON; with another such file as `--before` it prints
the table of both. CPU time of the process, the best of several blocks, so that a busy machine says the same. The data
lie around 1000; errors are relative to a float64 sum of the same numbers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ox

R = np.random.default_rng(0)


def data(*shape: int) -> Any:
    return 1000 + R.standard_normal(shape, dtype=np.float32)


def sums(x: Any, axes: tuple[int, ...]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    t = ox.from_numpy(x)
    return lambda: t.sum(axes), lambda: x.sum(axes, dtype=np.float64)


def of(name: str, x: Any, axis: int, **settings: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    t = ox.from_numpy(x)
    exact = getattr(np, {"norm": "sum"}.get(name, name))
    if name == "norm":
        return lambda: t.norm(2, axis), lambda: np.sqrt((x.astype(np.float64) ** 2).sum(axis))
    return lambda: getattr(t, name)(axis), lambda: exact(x.astype(np.float64), axis, **settings)


def cases() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """What is measured, and the exact result."""
    return {
        "sum of all, 4,194,304": sums(data(1 << 22), (0,)),
        "sum of all, 64 × 64": sums(data(64, 64), (0, 1)),
        "sum 1, 65,536 × 64": sums(data(1 << 16, 64), (1,)),
        "sum 0, 65,536 × 64": sums(data(1 << 16, 64), (0,)),
        "sum 0, 1,000 × 4,096": sums(data(1000, 4096), (0,)),
        "sum 0, 1,000,000 × 3": sums(data(1_000_000, 3), (0,)),
        "sum 0, 349,525 × 12": sums(data(349_525, 12), (0,)),
        "sum 1, 64 × 1,000 × 64": sums(data(64, 1000, 64), (1,)),
        "sum 0 2 3, 64 × 16 × 64 × 64": sums(data(64, 16, 64, 64), (0, 2, 3)),
        "sum 0 1 2, 64 × 64 × 64 × 16": sums(data(64, 64, 64, 16), (0, 1, 2)),
        "sum 0 of a transposed 1,024 × 4,096": sums(data(1024, 4096).T, (0,)),
        "sum 0 of every second column": sums(data(1 << 16, 64)[:, ::2], (0,)),
        "sum 0 of rows and columns backwards": sums(data(1 << 16, 64)[::-1, ::-1], (0,)),
        "sum 0 of a broadcast row": sums(np.broadcast_to(data(4096), (1024, 4096)), (0,)),
        "std 0, 65,536 × 64": of("std", data(1 << 16, 64), 0, ddof=1),
        "norm 0, 65,536 × 64": of("norm", data(1 << 16, 64), 0),
        "cumsum 0, 1,000,000": of("cumsum", data(1_000_000), 0),
    }


def cost(run: Callable[[], Any]) -> float:
    """Milliseconds of the fastest of nine blocks."""
    start = time.process_time()
    for _ in range(3):
        run()
    count = max(1, int(0.09 / max(time.process_time() - start, 1e-6)))
    times = []
    for _ in range(9):
        start = time.process_time()
        for _ in range(count):
            run()
        times.append((time.process_time() - start) / count)
    return min(times) * 1e3


def measured() -> dict[str, tuple[float, float]]:
    """Milliseconds and the largest relative error."""
    found = {}
    for name, (run, exact) in cases().items():
        found[name] = cost(run), float(np.abs(run().numpy() / exact() - 1).max())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--before", type=Path)
    given = parser.parse_args()
    now = measured()
    if given.file.exists():  # the best of several runs
        for name, (ms, error) in json.loads(given.file.read_text()).items():
            now[name] = min(ms, now[name][0]), max(error, now[name][1])
    given.file.write_text(json.dumps(now, indent=1))
    if given.before is not None:
        print("| | before, ms | after, ms | ratio | error before | error after |\n|---|---|---|---|---|---|")
        for name, (ms, error) in json.loads(given.before.read_text()).items():
            after, left = now[name]
            print(f"| {name} | {ms:.3f} | {after:.3f} | {after / ms:.2f} | {error:.0e} | {left:.0e} |")


if __name__ == "__main__":
    main()
