"""The zoo compiled: four steps of training at two sizes, beside the same in eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from architecture import flat
from architectures import ZOO
from beside_eager import Program, compare, reasons, recordings

import ox


def training_step(program: Program) -> Callable[..., Any]:
    def step(*inputs: Any) -> Any:
        outputs = flat(program.model(*inputs))
        loss = sum((x * x).mean() for x in outputs if x.requires_grad)
        if not isinstance(loss, int):  # one that gives whole numbers has nothing to learn
            loss.backward()
            program.optimizer.step()
            program.optimizer.zero_grad()  # some are rounding errors alone: the weights show the others
        return outputs

    return step


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("name", ZOO)
def test_training(name: str) -> None:
    architecture = ZOO[name]
    batches = [
        tuple(ox.from_numpy(x) for x in architecture.inputs(**sizes))
        for sizes in (architecture.sizes, architecture.other) * 2  # recorded, and then run
    ]
    _, compiled = compare(
        lambda: Program(architecture.make(), lambda p: ox.optim.SGD(p, lr=0.01)), training_step, batches
    )
    assert recordings(compiled) or reasons(compiled)  # hooks, or sizes that depend on values, keep a model eager
