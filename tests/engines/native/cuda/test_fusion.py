"""The generated kernels of a GPU compile with NVRTC, without a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from nvrtc import OLDEST, compiled

import ox
from ox import nn
from ox.engines.engine import Array, Task
from ox.engines.native.cuda.fusion import Fused, fused
from ox.engines.native.cuda.halves import split
from ox.engines.native.launches import Launch
from ox.engines.reference import Reference, Replayed
from ox.kernels.gpu_source import gpu_source


class Tasks:
    """An engine that keeps what it is given."""

    name = "tasks"

    def __init__(self) -> None:
        self.tasks: list[tuple[Task, list[bool]]] = []

    def build(self, task: Task) -> Callable[[Sequence[Array]], list[Array]]:
        replayed: Replayed = Reference().build(task)

        def run(arrays: Sequence[Array]) -> list[Array]:
            self.tasks.append((task, [a.ndim > 0 for a in arrays]))
            return replayed(arrays)

        return run


def step_of(model: nn.Module, optimizer: Any, dtype: Any = None) -> Callable[[Any, Any], Any]:
    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        with ox.autocast("cpu", dtype=dtype or ox.bfloat16, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, activation="gelu")
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(16 * 6, 5))


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten(), nn.Linear(288, 5))


def fused_of(model: nn.Module, x: Any, dtype: Any) -> Fused:
    """A training step's kernels, where tensors lie on the device and numbers on the host."""
    engine = Tasks()
    step = ox.compile(step_of(model, ox.optim.AdamW(model.parameters()), dtype), backend=engine)
    for _ in range(3):
        step(x, ox.tensor([0, 1, 2, 4]))
    task, on_device = engine.tasks[-1]
    inputs = {v for v, there in zip(task.graph.inputs, on_device, strict=True) if there}
    return fused(task, split(task, inputs))


@pytest.mark.parametrize("dtype", [None, ox.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["transformer", "cnn"])
def test_kernels_of_a_training_step_compile(name: str, dtype: Any) -> None:
    model, x = (transformer(), ox.randn(4, 6, 16)) if name == "transformer" else (cnn(), ox.randn(4, 3, 8, 8))
    found = fused_of(model, x, dtype)
    assert found.finishing, "the norm of the gradients is a sum of all"
    count = sum(len(region.nodes) for part in found.work if isinstance(part, Launch) for region in part.regions)
    assert count > 50
    code = compiled(gpu_source(found.source), OLDEST)
    assert all(f".entry {each}(" in code for each in [*found.names.values(), *found.finishing])
