"""What compiled calls keep alive, and for how long."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from beside_eager import reasons, recordings

import ox
from ox import nn
from ox.engines.engine import Task
from ox.engines.native import Native


def training(backend: Any = None, fullgraph: bool = True) -> tuple[nn.Module, Callable[[Any], Any], Any]:
    model = nn.Linear(4, 2)
    optimizer = ox.optim.Adam(model.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step, ox.compile(step, backend=backend, fullgraph=fullgraph)


def test_the_recorded_call_lets_its_tensors_go() -> None:
    model, _, compiled = training()
    compiled(ox.randn(3, 4))
    x = ox.randn(3, 4)
    before = weakref.ref(model.weight.grad)
    given = weakref.ref(x)
    compiled(x)
    assert len(recordings(compiled)) == 1, reasons(compiled)
    del x
    gc.collect()
    assert given() is None
    assert before() is None


def test_an_argument_with_a_gradient_is_let_go() -> None:
    @ox.compile(fullgraph=True)
    def filled(x: Any) -> Any:
        (x * x).sum().backward()
        return x.grad * 2

    x = ox.ones(3, requires_grad=True)
    filled(x)
    given = weakref.ref(x)
    del x
    gc.collect()
    assert given() is None
    other = ox.full((3,), 2.0, requires_grad=True)
    assert filled(other).tolist() == [8, 8, 8]
    assert other.grad.tolist() == [4, 4, 4]


class Asking:
    """The engine `native`, which asks something before each run."""

    name = "asking"

    def __init__(self, ask: Callable[[], Any]) -> None:
        self.ask, self.said = ask, []  # type: tuple[Callable[[], Any], list[Any]]

    def build(self, task: Task) -> Any:
        run = Native().build(task)

        def asked(arrays: Sequence[Any]) -> list[Any]:
            self.said.append(self.ask())
            return run(arrays)

        asked.explain = run.explain  # type: ignore[attr-defined]
        return asked


def test_old_gradients_go_before_new_ones_come() -> None:
    held: list[Any] = []
    engine = Asking(lambda: held[0].weight.grad)
    model, _, compiled = training(engine)
    held.append(model)
    for _ in range(4):
        compiled(ox.randn(3, 4))
    assert engine.said == [None, None]
    assert model.weight.grad is not None


def test_the_first_step_of_an_optimizer_runs_as_eager_code_does() -> None:
    ox.manual_seed(0)
    x = ox.randn(3, 4)
    model, _, compiled = training(fullgraph=False)
    start = {name: t.clone() for name, t in model.state_dict().items()}
    compiled(x)
    first = {name: t.numpy().copy() for name, t in model.state_dict().items()}
    assert not recordings(compiled)
    model.load_state_dict(start)
    other, eager, _ = training()
    other.load_state_dict(start)
    eager(x)
    for name, t in other.state_dict().items():
        np.testing.assert_array_equal(t.numpy(), first[name])
