"""Compiled training steps: `ox.compile` of a whole step, by engine, beside ox eager, PyTorch eager with its fused
optimizers, and `torch.compile` of forward and loss.

    python benchmarks/bench_compile.py                     # every step, engine native
    python benchmarks/bench_compile.py "step: mlp" cnn     # names that contain one of these words
    ENGINES="native onnxruntime openvino" python benchmarks/bench_compile.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import sides
from bench_eager import SECONDS, reason, timed, torch_compile
from workloads import STEPS, Prepare, Step, as_it_is, chosen

ENGINES = os.environ.get("ENGINES", "native").split()


def figures(lib: Any, prepare: Prepare, whole: Callable[[Step], Step]) -> dict[str, float | str]:
    """The time of each step in ms; `prepare` is given its forward, `whole` all of it."""
    found: dict[str, float | str] = {}
    for name, workload in chosen(filter(None, os.environ.get("WORKLOADS", "").split("|"))).items():
        if name not in STEPS:
            continue
        lib.manual_seed(0)
        try:
            found[name] = timed(whole(workload(lib, prepare)), SECONDS)
        except Exception as error:  # the other workloads still count
            found[name] = reason(error)
    return found


def run_ox(engine: str) -> dict[str, float | str]:
    import ox

    return figures(ox, as_it_is, lambda step: ox.compile(step, backend=engine, fullgraph=True))


def run_eager() -> dict[str, float | str]:
    import ox

    return figures(ox, as_it_is, as_it_is)


def run_torch() -> dict[str, float | str]:
    import torch

    return figures(torch, as_it_is, as_it_is)


def run_compiled() -> dict[str, float | str]:
    import torch

    return figures(torch, torch_compile(), as_it_is)


SIDES = {
    **{engine: partial(run_ox, engine) for engine in ENGINES},
    "ox eager": run_eager,
    "torch": run_torch,
    "torch.compile": run_compiled,
}

if __name__ == "__main__":
    if "--side" not in sys.argv and len(sys.argv) > 1:
        os.environ["WORKLOADS"] = "|".join(sys.argv[1:])
    sides.main(SIDES, unit="milliseconds, smaller is better")
