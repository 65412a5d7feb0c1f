"""The host's time of eager calls on a GPU, in µs: on tests/cuda/host_cuda, whose kernels and products do nothing here.

CPU time of one thread, the least of several rounds. Beside an addition of CuPy, and calls on the CPU, whose path is the
same up to the executor. `python benchmarks/bench_host_time.py`; needs `make hostcuda`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/cuda"))
import host_cuda

ROUNDS, CALLS = 25, 100


def host_time(run: Callable[[], Any], calls: int = CALLS) -> float:
    """µs of a call."""
    for _ in range(3):
        run()
    times = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(calls):
            run()
        times.append(time.thread_time() - start)
    return min(times) / calls * 1e6


def calls() -> dict[str, Callable[[], Any]]:
    """Small calls, without a history."""
    import numpy as np

    import ox
    from ox import nn

    numbers = np.random.default_rng(0)

    def tensor(*shape: int) -> Any:
        return ox.tensor(numbers.standard_normal(shape).astype(np.float32))

    here, there = tensor(8, 8), tensor(8, 8).to("cuda")
    array, q = there.array, tensor(2, 2, 4, 8).to("cuda")
    linear, norm = nn.Linear(8, 8).to("cuda"), nn.LayerNorm(8).to("cuda")
    attend = nn.functional.scaled_dot_product_attention
    return {
        "CuPy: array + array": lambda: array + array,
        "x + x": lambda: there + there,
        "gelu(x)": lambda: nn.functional.gelu(there),
        "softmax(x)": lambda: nn.functional.softmax(there, -1),
        "x @ x": lambda: there @ there,
        "Linear": lambda: linear(there),
        "LayerNorm": lambda: norm(there),
        "scaled_dot_product_attention": lambda: attend(q, q, q),
        "the same, causal": lambda: attend(q, q, q, is_causal=True),
        "on the CPU: x + x": lambda: here + here,
        "on the CPU: x @ x": lambda: here @ here,
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    host_cuda.install()
    from training_steps import gpt, names_of_types, prepared

    import ox

    with ox.no_grad():
        for name, run in calls().items():
            run()
            with host_cuda.idle():
                print(f"{name:32} {host_time(run):10.1f}", flush=True)
    step = prepared(gpt, "eager")
    step()
    with host_cuda.idle():
        print(f"{'training step of a small GPT':32} {host_time(step, 2):10.0f}")
    print(f"{'its str(dtype), number':32} {names_of_types(step):10}")


if __name__ == "__main__":
    main()
