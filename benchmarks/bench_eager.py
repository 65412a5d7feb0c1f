"""Eager training steps and single operators beside PyTorch eager with its fused optimizers.

    python benchmarks/bench_eager.py                          # everything
    python benchmarks/bench_eager.py "step: cnn" gelu growth  # names that contain one of these words

Three more sides: `compiled` is PyTorch with `torch.compile`, `whole` is ox with `ox.compile` of whole training steps,
`without` is ox without its compiled kernels (OX_KERNELS=0).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import sides
from workloads import STEPS, WORKLOADS, Prepare, Step, as_it_is, chosen, words_of

NO_STEPS = tuple(name for name in WORKLOADS if name not in STEPS)
GROWTHS = tuple(name for name in WORKLOADS if name.startswith("growth"))
SECONDS, FEWER = 1.5, 0.5  # of measuring a training step and anything else, after as much warm-up as a third of it


def timed(step: Step, seconds: float) -> float:
    """The median of a step's times, in milliseconds."""
    step()
    warm = time.perf_counter() + seconds / 3
    while time.perf_counter() < warm:
        step()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e3


def reason(error: Exception) -> str:
    """The first line of an error, for a list of what was left out."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def figures(
    lib: Any,
    prepare: Prepare = as_it_is,
    whole: Callable[[Step], Step] = as_it_is,
    leave_out: tuple[str, ...] = (),
) -> dict[str, float | str]:
    """Milliseconds by workload; `prepare` is given the forward of each, `whole` all of its step."""
    found: dict[str, float | str] = {}
    for name, workload in chosen(filter(None, os.environ.get("WORKLOADS", "").split("|"))).items():
        if name in leave_out:
            continue
        lib.manual_seed(0)
        try:
            found[name] = timed(whole(workload(lib, prepare)), SECONDS if name in STEPS else FEWER)
        except Exception as error:  # the other workloads still count
            found[name] = reason(error)
    return found


def torch_compile() -> Prepare:
    """`torch.compile` with each workload's own sizes."""
    import torch

    def prepare(forward: Any) -> Any:
        # The workloads share code, and PyTorch stops compiling what was compiled several times.
        torch._dynamo.reset()
        return torch.compile(forward, dynamic=False)

    return prepare


def run_ox() -> dict[str, float | str]:
    import ox

    return figures(ox)


def run_torch() -> dict[str, float | str]:
    import torch

    return figures(torch)


def run_compiled() -> dict[str, float | str]:
    import torch

    return figures(torch, torch_compile())


def ox_compile(step: Step, engine: str = "native") -> Step:
    """A whole step as one graph."""
    import ox

    return ox.compile(step, backend=engine, fullgraph=True)


def run_whole() -> dict[str, float | str]:
    import ox

    return figures(ox, whole=ox_compile, leave_out=NO_STEPS)


def run_without() -> dict[str, float | str]:
    os.environ["OX_KERNELS"] = "0"
    import ox

    return figures(ox, leave_out=GROWTHS)


SIDES = {"ox": run_ox, "torch": run_torch, "compiled": run_compiled, "whole": run_whole, "without": run_without}

if __name__ == "__main__":
    if "--side" not in sys.argv:
        os.environ["WORKLOADS"] = "|".join(words_of(__doc__))
    sides.main(SIDES, unit="milliseconds, smaller is better")
