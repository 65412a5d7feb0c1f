"""Where the time of small training steps goes: CPU time of one thread, by phase beside PyTorch, and ox's by layer of
the call path.

The layers are measured by calling again what a step called: first each kernel with its checks, memory and the call
into the library (`kernels`), then the operators around them without and with a history (`operators`, `history`). What
is left of a forward are modules and functions, of a backward the walk and the gradient rules. Caches are warmer when
one layer runs alone, so that the parts of a step that needs much memory are too small, and its rest too large.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import sides
from workloads import Training, as_it_is, digits, mlp, transformer

WARM, COUNT = 20, 200
MODELS: dict[str, Callable[..., Any]] = {
    "mlp, batch 1": partial(mlp, batch=1),
    "digits, batch 1": partial(digits, batch=1),
    "mlp, 16 layers of 256": partial(mlp, width=256, depth=16),
    "transformer, T 32": partial(transformer, batch=4, layers=2, width=128, heads=4, length=32),
}
PHASES = ("zero_grad", "forward", "backward", "update")


def low(times: list[float]) -> float:
    """In µs, a time that a run without disturbance takes: one in twenty was shorter."""
    return sorted(times)[len(times) // 20] * 1e6


def timed(run: Callable[[], Any]) -> float:
    times = []
    for _ in range(COUNT):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return low(times)


def phases(step: Training) -> dict[str, float]:
    """The CPU time of each phase of a step."""
    times: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for number in range(WARM + COUNT):
        marks = [time.thread_time()]
        step.optimizer.zero_grad()
        marks.append(time.thread_time())
        loss = step.loss()
        marks.append(time.thread_time())
        loss.backward()
        marks.append(time.thread_time())
        step.optimizer.step()
        marks.append(time.thread_time())
        if number >= WARM:
            for phase, start, end in zip(PHASES, marks, marks[1:], strict=False):
                times[phase].append(end - start)
    return {phase: low(of) for phase, of in times.items()}


class Calls:
    """What a phase calls: operators, and for each of them the executor. Those that a body is made of, not the body."""

    def __init__(self, run: Callable[[], Any]) -> None:
        from ox.core import operator

        self.operators: list[tuple[Any, ...]] = []
        self.executors: list[tuple[Any, ...]] = []
        call, dispatch = operator.Operator.__call__, operator.dispatch

        def see_operator(op: Any, *inputs: Any, **options: Any) -> Any:
            before = len(self.operators)
            result = call(op, *inputs, **options)
            if len(self.operators) == before:
                self.operators.append((op, inputs, options))
            return result

        def see_executor(op: Any, arrays: list[Any], attributes: dict[str, Any], accelerated: Any) -> Any:
            before, given = len(self.executors), (op, list(arrays), dict(attributes), accelerated)
            result = dispatch(op, arrays, attributes, accelerated)
            if len(self.executors) == before:
                self.executors.append(given)
            return result

        with (
            patch.object(operator.Operator, "__call__", see_operator),
            patch.object(operator, "dispatch", see_executor),
        ):
            run()
        self._dispatch = dispatch

    def run_operators(self) -> None:
        for op, inputs, options in self.operators:
            op(*inputs, **options)

    def run_executors(self) -> None:
        for op, arrays, attributes, accelerated in self.executors:
            self._dispatch(op, list(arrays), attributes, accelerated)


def layers(step: Training) -> dict[str, float]:
    """The parts of forward and backward by layer of the call path."""
    import ox

    losses: list[Any] = []
    forward = Calls(lambda: losses.append(step.loss()))
    backward = Calls(lambda: losses[0].backward(retain_graph=True))
    with ox.no_grad():
        plain, back = timed(forward.run_operators), timed(backward.run_operators)
    kernels, back_kernels = timed(forward.run_executors), timed(backward.run_executors)
    return {
        "forward: kernels": kernels,
        f"forward: {len(forward.operators)} operators": plain - kernels,
        "forward: history": timed(forward.run_operators) - plain,
        "backward: kernels": back_kernels,
        f"backward: {len(backward.operators)} operators": back - back_kernels,
    }


def _figures(lib: Any) -> dict[str, float]:
    lib.set_num_threads(1)
    found: dict[str, float] = {}
    for name, model in MODELS.items():
        lib.manual_seed(0)
        step = model(lib, as_it_is)
        by_phase = phases(step)
        found |= {f"{name}: {phase}": took for phase, took in by_phase.items()}
        found[f"{name}: step"] = sum(by_phase.values())
        if lib.__name__ == "ox":
            found |= {f"{name}: of {layer}": took for layer, took in layers(step).items()}
    return found


def run_ox() -> dict[str, float]:
    import ox

    return _figures(ox)


def run_torch() -> dict[str, float]:
    import torch

    return _figures(torch)


if __name__ == "__main__":
    if "--side" not in sys.argv:
        argparse.ArgumentParser(description=__doc__).parse_args()
    sides.main({"ox": run_ox, "torch": run_torch}, unit="µs of CPU time of one thread")
