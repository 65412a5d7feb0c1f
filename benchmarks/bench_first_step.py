"""The first training step of a process, and its peak memory, beside PyTorch eager and `torch.compile`.

    python benchmarks/bench_first_step.py                     # every training step
    python benchmarks/bench_first_step.py "step: mlp" cnn     # names that contain one of these words

Each process runs one workload. The first process of a workload and side finds empty caches: ox compiles its kernels,
`torch.compile` the model. The others find what it left. The time is that from the import to the end of the first step:
model, optimizer and step, because both libraries prepare something in each of them; with `ox.compile` of the whole step
(the side `whole`) it is that to the end of the third step, the first compiled one: the optimizer's state is created in
the first, and the second is recorded. Memory is the peak after some steps, less the peak right after the import.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import sides
from bench_eager import reason, torch_compile
from sides import Result, peak_memory
from workloads import OPERATORS, STEPS, Prepare, Step, as_it_is, chosen, words_of

MEASURED = {**STEPS, **{name: step for name, step in OPERATORS.items() if name == "attention T 4096"}}
MORE = 5  # steps after the first one, until the memory does not grow any more
COLD, WARM, MEMORY = "first step, empty caches, ms", "first step, ms", "peak memory, MiB"


def figures(
    lib: Any, prepare: Prepare = as_it_is, whole: Callable[[Step], Step] = as_it_is, calls: int = 1
) -> dict[str, float | str]:
    """The time to the end of the step of this number, which is the first one of its kind."""
    imported = peak_memory()
    lib.manual_seed(0)
    try:
        start = time.perf_counter()
        step = whole(MEASURED[os.environ["WORKLOAD"]](lib, prepare))
        for _ in range(calls):
            step()
        first = (time.perf_counter() - start) * 1e3
        for _ in range(MORE):
            step()
    except Exception as error:
        return {WARM: reason(error)}
    return {WARM: first, MEMORY: peak_memory() - imported}


def run_ox() -> dict[str, float | str]:
    import ox

    return figures(ox)


def run_torch() -> dict[str, float | str]:
    import torch

    return figures(torch)


def run_compiled() -> dict[str, float | str]:
    import torch

    # part of the import: what torch.compile itself needs
    import torch._inductor.compile_fx

    return figures(torch, torch_compile())


def run_whole() -> dict[str, float | str]:
    import ox

    if os.environ["WORKLOAD"] not in STEPS:
        return {}
    made: list[Any] = []

    def whole(step: Step) -> Any:
        made.append(ox.compile(step))
        return made[0]

    # the first step creates the optimizer's state, the second one is recorded, the third one runs compiled
    found = figures(ox, whole=whole, calls=3)
    eager = made[0].eager if made else {}
    return {WARM: f"it stayed eager: {next(iter(eager))}"} if eager else found


SIDES = {"ox": run_ox, "torch": run_torch, "compiled": run_compiled, "whole": run_whole}


def measure(words: Iterable[str], rounds: int = sides.ROUNDS) -> Result:
    """Names are those of a workload and a figure: `step: mlp: peak memory, MiB`."""
    whole = Result()
    for name in chosen(words):
        if name not in MEASURED:
            continue
        with tempfile.TemporaryDirectory() as caches:
            environment = {
                "WORKLOAD": name,
                "OX_CACHE": f"{caches}/ox",
                "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
            }
            cold = sides.measure(__file__, SIDES, environment, 1)
            warm = sides.measure(__file__, [side for side in SIDES if side not in cold.failed], environment, rounds)
        whole.figures[f"{name}: {COLD}"] = cold.figures.get(WARM, {})
        for figure in (WARM, MEMORY):
            whole.figures[f"{name}: {figure}"] = warm.figures.get(figure, {})
        for part in (cold, warm):
            failed = {side: f"the process failed: {text}" for side, text in part.failed.items()}
            whole.left_out.setdefault(name, {}).update(part.left_out.get(WARM, {}) | failed)
    return whole


if __name__ == "__main__":
    if "--side" in sys.argv:
        sides.answer(SIDES)
    else:
        for row in sides.rows(measure(words_of(__doc__)), SIDES):
            print(row)
