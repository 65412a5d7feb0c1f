"""An eager training step of an LSTM and a GRU (2 layers of 256, T = 100, batch 32, SGD) beside PyTorch; inference."""

from __future__ import annotations

import statistics
import time
from typing import Any

import sides

LAYERS, WIDTH, LENGTH, BATCH = 2, 256, 100, 32


def _time(step: Any, warm: int, count: int) -> float:
    for _ in range(warm):
        step()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def _figures(lib: Any) -> dict[str, float]:
    lib.manual_seed(0)
    x = lib.randn(LENGTH, BATCH, WIDTH)
    figures = {}
    for kind in ("LSTM", "GRU"):
        model = getattr(lib.nn, kind)(WIDTH, WIDTH, LAYERS)
        optimizer = lib.optim.SGD(model.parameters(), lr=1e-2)

        def step(model: Any = model, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            y, _ = model(x)
            y.square().mean().backward()
            optimizer.step()

        def infer(model: Any = model) -> None:
            with lib.no_grad():
                model(x)

        figures[f"{kind} training step, ms"] = _time(step, 3, 12)
        figures[f"{kind} inference, ms"] = _time(infer, 3, 12)
    return figures


def run_ox() -> dict[str, float]:
    import ox

    return _figures(ox)


def run_torch() -> dict[str, float]:
    import torch

    return _figures(torch)


if __name__ == "__main__":
    sides.main({"ox": run_ox, "torch": run_torch}, unit="milliseconds, smaller is better")
