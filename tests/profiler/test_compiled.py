"""What the profiler and `track_memory` see of compiled calls: the steps of their engine, where they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ox
import ox.nn.functional as F
from ox import nn
from ox.profiler import profile


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 10)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        return self.last(self.norm(self.first(x).exp().sin() * 2))


def step_of(model: nn.Module) -> Callable[..., Any]:
    optimizer = ox.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def step(x: ox.Tensor, target: ox.Tensor) -> ox.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


X, TARGET = ox.randn(64, 64), ox.randint(0, 10, (64,))


def profiled(call: Callable[[], Any], **options: bool) -> profile:
    with profile(**options) as p:
        call()
    return p


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("backend", ["native", "onnxruntime", "eager"])
def test_a_compiled_step_stays_compiled(backend: str) -> None:
    ox.manual_seed(0)
    model = Net()
    step = ox.compile(step_of(model), backend=backend)
    losses = [float(step(X, TARGET)) for _ in range(4)]
    p = profiled(lambda: losses.append(float(step(X, TARGET))))
    names = {row.key for row in p.key_averages()}
    seen = {
        "native": {"Linear", *(name for name in names if name.startswith("fused ") and "Sin" in name.split())},
        "onnxruntime": {"onnxruntime"},
        "eager": {"Linear", "Exp", "Sin"},
    }
    assert seen[backend] <= names and (backend != "native" or len(seen[backend]) > 1)
    assert not step.explain().lines[-1].startswith("eager")
    ox.manual_seed(0)
    beside = step_of(Net())
    np.testing.assert_allclose(losses, [float(beside(X, TARGET)) for _ in range(5)], rtol=1e-5)


@pytest.mark.usefixtures("library")
def test_rows_have_modules_lines_shapes_and_flops() -> None:
    model = Net()
    compiled = ox.compile(model)
    with ox.no_grad():
        compiled(X)
        p = profiled(lambda: compiled(X), with_modules=True, with_stack=True, record_shapes=True, with_flops=True)
    rows = {event.name: event for event in p.events()}
    fused = rows["fused Exp Sin Mul"]
    assert fused.module == "Net" and fused.line.startswith("test_compiled.py:") and fused.shapes == ((64, 128),)
    assert rows["LayerNormalization"].module == "Net.norm"
    products = [event for event in p.events() if event.name == "Linear"]
    assert [(e.module, e.shapes[0], e.flops) for e in products] == [
        ("Net.first", (64, 64), 2 * 64 * 64 * 128), ("Net.last", (64, 128), 2 * 64 * 128 * 10),
    ]  # fmt: skip


@pytest.mark.usefixtures("library")
def test_the_backward_of_a_compiled_module() -> None:
    compiled = ox.compile(Net())
    for _ in range(2):
        compiled(X).sum().backward()
    p = profiled(lambda: compiled(X).sum().backward())
    phases = {row.key: {r.phase for r in p.key_averages() if r.key == row.key} for row in p.key_averages()}
    assert phases["fused Exp Sin Mul"] == {"forward"}
    assert phases["LayerNormalizationGradient"] == {"backward"} and phases["CompiledBackward"] == {"backward"}


@pytest.mark.usefixtures("library")
def test_a_call_may_be_recorded_in_a_profile() -> None:
    compiled = ox.compile(Net())
    with ox.no_grad():
        p = profiled(lambda: (compiled(X), compiled(X)))
    names = [event.name for event in p.events()]
    assert names.count("fused Exp Sin Mul") == 1 and names.count("Exp") == 1


def test_memory_that_is_planned_is_counted_once() -> None:
    compiled = ox.compile(lambda x: (x @ x).exp() @ x)
    x = ox.randn(256, 256)
    before = compiled(x).numpy()
    compiled(x)
    with ox.track_memory() as memory:
        np.testing.assert_array_equal(compiled(x).numpy(), before)
    assert 256 * 256 * 4 <= memory.made <= 3 * 256 * 256 * 4
    p = profiled(lambda: compiled(x), profile_memory=True)
    assert sum(event.memory - event.inner_memory for event in p.events()) <= 256 * 256 * 4


def test_what_looks_at_every_node_stays_eager() -> None:
    compiled = ox.compile(Net())
    compiled(X)
    with ox.autograd.detect_anomaly(), profile() as p:
        compiled(X)
    assert "Exp" in {event.name for event in p.events()}
    with profile() as p, ox.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        compiled(X)
    assert "Exp" in {event.name for event in p.events()}
