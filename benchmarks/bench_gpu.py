"""Training steps and operators on a GPU, beside PyTorch where it is installed. `make gpu` runs this in a given time.

    python benchmarks/bench_gpu.py gpu.json               # all of it, for at most ten minutes
    python benchmarks/bench_gpu.py gpu.json ox            # one side, in one process
    GPU_STEP_SECONDS=60 python benchmarks/bench_gpu.py gpu.json

Each side is alone in a process, and the processes alternate. A figure is the median of several stretches of a step,
each between two CUDA events, in milliseconds; loss and gradients stay on the device. Neither side uses TF32.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sides
from bench_eager import reason
from gpu_workloads import CASES, SHORT, Case, Step

STRETCH, STRETCHES = 0.02, 5  # seconds of a stretch of steps, and how many there are
MOST_WARM = 0.3  # seconds of warming up after the first steps
WARM_STEPS = 4  # a compiled call records in the first, replays in the second, and is captured in the third
MOST_ROUNDS = 5
RESERVE = 5.0  # seconds that are left when the last process ends
BEGAN = time.monotonic()  # of a side's process
NO_TIME = "no time was left for it"

Elapsed = Callable[[Step, int], float]  # milliseconds of so many steps, from the first to the last launch's end


def stand_in() -> str:
    """What stands in for a GPU (scripts/gpu.py); "" on one."""
    return os.environ.get("GPU_STAND_IN", "")


def is_tiny() -> bool:
    return bool(stand_in()) or os.environ.get("GPU_QUICK") == "1"


def cases() -> dict[str, Case]:
    return {name: CASES[name] for name in SHORT} if os.environ.get("GPU_QUICK") == "1" else CASES


def milliseconds(step: Step, elapsed: Elapsed) -> float:
    """The median of a step's times."""
    for _ in range(WARM_STEPS):
        one = elapsed(step, 1)
    if is_tiny():  # it shows that the step runs; its time is nobody's
        return one
    end = time.monotonic() + MOST_WARM
    while time.monotonic() < end:
        one = elapsed(step, 1)
    count = max(1, min(1000, int(STRETCH * 1000 / max(one, 1e-3))))
    return statistics.median(elapsed(step, count) / count for _ in range(STRETCHES))


def keep(found: dict[str, float | str], name: str) -> None:
    """Note what is known, and what comes now, for the case that the process ends in it."""
    if log := os.environ.get("GPU_SIDE_LOG"):
        note(Path(log), {"figures": found, "memory": sides.peak_memory(), "now": name})


def figures(
    lib: Any, elapsed: Elapsed, capture: Callable[[Step], Step], release: Callable[[], object]
) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    names, after = [*cases()], os.environ.get("GPU_SIDE_AFTER")
    names = names[names.index(after) + 1 :] if after else names
    end = BEGAN + float(os.environ.get("GPU_SIDE_SECONDS", "600"))
    for name in names:
        case = cases()[name]
        keep(found, name)
        if time.monotonic() > end:
            found[name] = NO_TIME
            continue
        lib.manual_seed(0)
        step: Step | None = None
        try:
            step = case.step(lib, is_tiny())
            found[name] = milliseconds(capture(step) if case.captured else step, elapsed)
        except Exception as error:
            found[name] = reason(error)
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
        keep(found, name)
        del step
        gc.collect()
        release()  # which raises after an error that breaks the device for its process
    return found


def run_ox() -> dict[str, float | str]:
    if stand_in():
        import host_cuda  # type: ignore[import-not-found]

        host_cuda.install()
    import cupy

    import ox

    def elapsed(step: Step, count: int) -> float:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(count):
            step()
        end.record()
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end))

    return figures(ox, elapsed, lambda step: ox.compile(step, fullgraph=True), ox.cuda.empty_cache)


def run_torch() -> dict[str, float | str]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def elapsed(step: Step, count: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            step()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    def capture(step: Step) -> Step:
        """Warmed up on a stream of its own, as PyTorch's page about CUDA graphs says."""
        other = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(other)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay  # type: ignore[no-any-return]

    return figures(torch, elapsed, capture, torch.cuda.empty_cache)


def absent() -> dict[str, str]:
    """Sides that cannot run here, with the reason."""
    if stand_in():
        return {"torch": f"{stand_in()} does not run PyTorch"}
    try:
        import torch
    except ImportError:
        return {"torch": "PyTorch is not installed"}
    return {} if torch.cuda.is_available() else {"torch": "this PyTorch sees no GPU"}


def measure(target: Path, seconds: float, only: str = "") -> sides.Result:
    """Run the processes of the sides in turn, as long as there is time for another pair. The file has what is known.

    Each process of the first pair has its share of the time: it leaves out what it does not come to.
    """
    began = time.monotonic()
    result = sides.Result(failed={side: why for side, why in absent().items() if only in ("", side)})
    for number in range(1 if is_tiny() or only else MOST_ROUNDS):
        spent = time.monotonic() - began
        if number and spent + spent / number > seconds - RESERVE:
            break
        left = [side for side in SIDES if side not in result.failed and only in ("", side)]
        for i, side in enumerate(left):
            share = (began + seconds - RESERVE - time.monotonic()) / (len(left) - i)
            measure_side(result, side, target.with_suffix(f".{side}"), share)
            write(result, target, number + 1)
    return result


def measure_side(result: sides.Result, side: str, log: Path, share: float) -> None:
    """Run a side's process; where a workload ends it, another one goes on with the next workload."""
    end, after = time.monotonic() + share, ""
    while True:
        log.unlink(missing_ok=True)
        left = end - time.monotonic()
        limits = {"GPU_SIDE_SECONDS": str(0.8 * left), "GPU_SIDE_LOG": str(log), "GPU_SIDE_AFTER": after}
        try:
            result.add(side, sides.run_side(__file__, side, limits, left))
            return
        except sides.SideFailed as error:
            known = json.loads(log.read_text()) if log.exists() else {}
            if known:
                result.add(side, known)
                result.left_out.setdefault(known["now"], {}).setdefault(side, f"its process ended: {error}")
            if not known or end - time.monotonic() < RESERVE:
                result.failed[side] = str(error)
                return
            after = known["now"]


def write(result: sides.Result, target: Path, rounds: int) -> None:
    skipped = absent()
    failed = [f"{side}: {why}" for side, why in result.failed.items() if side not in skipped]
    failed += [f"{name}, ox: {by_side['ox']}" for name, by_side in result.left_out.items() if "ox" in by_side]
    found = {"failed": failed, "figures": result.figures, "left out": result.left_out, "absent": skipped}
    note(target, {**found, "rounds": rounds, "tiny": is_tiny()})


def note(file: Path, found: dict[str, Any]) -> None:
    """Write it, whole or not at all."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps(found, indent=1))
    part.replace(file)


SIDES = {"ox": run_ox, "torch": run_torch}


def main() -> int:
    if "--side" in sys.argv:
        sides.answer(SIDES)
        return 0
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], *([side] for side in SIDES)):
        print("usage: python benchmarks/bench_gpu.py FILE.json [ox | torch]", file=sys.stderr)
        return 2
    result = measure(Path(sys.argv[1]), float(os.environ.get("GPU_STEP_SECONDS", "600")), *sys.argv[2:])
    for row in sides.rows(result, SIDES):
        print(row)
    return 1 if any("ox" in by_side for by_side in result.left_out.values()) or "ox" in result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
