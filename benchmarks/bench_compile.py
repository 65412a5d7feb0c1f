"""Compiled training steps: `ox.compile` of a whole step, by engine, beside ox eager, PyTorch eager with its fused
optimizers, and `torch.compile` of forward and loss.

    python benchmarks/bench_compile.py                     # every step, engine native
    python benchmarks/bench_compile.py "step: mlp" cnn     # names that contain one of these words
    ENGINES="native onnxruntime openvino" python benchmarks/bench_compile.py
"""

from __future__ import annotations

import os
import sys
from functools import partial

import sides
from bench_eager import NO_STEPS, figures, ox_compile, torch_compile
from workloads import words_of

ENGINES = os.environ.get("ENGINES", "native").split()


def run_ox(engine: str) -> dict[str, float | str]:
    import ox

    return figures(ox, whole=partial(ox_compile, engine=engine), leave_out=NO_STEPS)


def run_eager() -> dict[str, float | str]:
    import ox

    return figures(ox, leave_out=NO_STEPS)


def run_torch() -> dict[str, float | str]:
    import torch

    return figures(torch, leave_out=NO_STEPS)


def run_compiled() -> dict[str, float | str]:
    import torch

    return figures(torch, torch_compile(), leave_out=NO_STEPS)


SIDES = {
    **{engine: partial(run_ox, engine) for engine in ENGINES},
    "ox eager": run_eager,
    "torch": run_torch,
    "torch.compile": run_compiled,
}

if __name__ == "__main__":
    if "--side" not in sys.argv:
        os.environ["WORKLOADS"] = "|".join(words_of(__doc__))
    sides.main(SIDES, unit="milliseconds, smaller is better")
