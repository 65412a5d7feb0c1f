"""The time of one operator call: an Add of one element that records; forward and backward of a chain of forty."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import sides


def _figures(x: Any, c: Any, tanh: Callable[[Any], Any]) -> dict[str, float]:
    def chain() -> None:
        y = x
        for _ in range(20):
            y = tanh(y * c)
        y.backward()

    def best(run: Callable[[], Any], number: int) -> float:
        return min(timeit.repeat(run, number=number, repeat=9)) / number * 1e6

    return {"Add that records": best(lambda: x + c, 5000), "chain, an operator": best(chain, 200) / 40}


def run_ox() -> dict[str, float]:
    import ox

    return _figures(ox.ones(1, requires_grad=True), ox.ones(1), ox.tanh)


def run_torch() -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    return _figures(torch.ones(1, requires_grad=True), torch.ones(1), torch.tanh)


if __name__ == "__main__":
    sides.main({"ox": run_ox, "torch": run_torch}, unit="µs")
