"""Where the time of a training step goes: its most expensive operators, in ox and in PyTorch eager.

    python benchmarks/step_profile.py                # the transformer, the CNN and the LSTM
    python benchmarks/step_profile.py "step: cnn"    # names that contain one of these words

The time of an entry is its own: without that of the entries that it calls. `step` is what no operator counts: Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sides
from sides import SideFailed
from workloads import STEPS, as_it_is, chosen, words_of

NAMES = ("step: transformer", "step: cnn", "step: lstm")
WARM, PROFILED = 3, 5  # steps
ROWS = 10


@dataclass(frozen=True)
class Cost:
    """Of an operator, of the rest of a backward node, of the optimizer, or of the step itself."""

    name: str
    calls: float  # in one step
    milliseconds: float  # of one step
    share: float  # of the whole step


def costs(averages: Iterable[Any]) -> list[Cost]:
    """The rows of a profiler, the most expensive first."""
    rows = list(averages)
    whole = sum(row.self_cpu_time_total for row in rows)
    found = []
    for row in sorted(rows, key=lambda row: -row.self_cpu_time_total)[:ROWS]:
        backward = getattr(row, "phase", "forward") == "backward" and not row.key.endswith("Backward")
        name = f"{row.key} (in backward)" if backward else row.key
        own = row.self_cpu_time_total
        found.append(Cost(name, row.count / PROFILED, own / PROFILED / 1e3, own / whole))
    return found


def run_ox() -> dict[str, list[list[Any]]]:
    import ox
    from ox.profiler import profile, record_function

    step = STEPS[os.environ["WORKLOAD"]](ox, as_it_is)
    for _ in range(WARM):
        step()
    with profile() as profiler:
        for _ in range(PROFILED):
            with record_function("step"):
                step()
    return {"costs": [list(vars(each).values()) for each in costs(profiler.key_averages())]}


def run_torch() -> dict[str, list[list[Any]]]:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    step = STEPS[os.environ["WORKLOAD"]](torch, as_it_is)
    for _ in range(WARM):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(PROFILED):
            with record_function("step"):
                step()
    return {"costs": [list(vars(each).values()) for each in costs(profiler.key_averages())]}


SIDES = {"ox": run_ox, "torch": run_torch}


def measure(words: Iterable[str]) -> dict[str, dict[str, list[Cost] | str]]:
    """By workload, then by side: its costs, or why there are none."""
    found: dict[str, dict[str, list[Cost] | str]] = {}
    for name in chosen(words):
        if name in NAMES:
            for side in SIDES:
                try:
                    report = sides.run_side(__file__, side, {"WORKLOAD": name})
                    rows: list[Cost] | str = [Cost(*row) for row in report["figures"]["costs"]]
                except SideFailed as error:
                    rows = str(error)
                found.setdefault(name, {})[side] = rows
    return found


if __name__ == "__main__":
    if "--side" in sys.argv:
        sides.answer(SIDES)  # type: ignore[arg-type]
    else:
        for name, by_side in measure(words_of(__doc__)).items():
            for side, rows in by_side.items():
                print(f"{name}, {side}" + (f": {rows}" if isinstance(rows, str) else ""))
                for row in rows if isinstance(rows, list) else []:
                    print(f"  {row.name:<50} {row.calls:7.1f} calls {row.milliseconds:9.3f} ms {row.share:6.1%}")
