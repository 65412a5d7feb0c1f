"""What compiled calls keep alive, and for how long."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside_eager import reasons, recordings

import ox
from ox import nn
from ox.engines.engine import Task
from ox.engines.native import Native
from ox.engines.native.memory import AddressSpace, Life, place


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


def test_an_import_is_no_part_of_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = "import os\nFACTOR = float(os.environ.get('A_TEST', '2'))\nprint(FACTOR)\n"
    (tmp_path / "reads_environment.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    def scaled(x: Any) -> Any:
        import reads_environment  # type: ignore[import-not-found]

        return x * reads_environment.FACTOR

    compiled = ox.compile(scaled, fullgraph=True)
    assert [compiled(ox.ones(2)).tolist() for _ in range(2)] == [[2, 2], [2, 2]]


def test_address_space() -> None:
    space = AddressSpace()
    arrays = [space.array((3, 5), np.float32), space.array((), np.int64), space.array((1 << 25,), np.float32)]
    assert [a.shape for a in arrays] == [(3, 5), (), (1 << 25,)]
    assert not any(np.may_share_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_places_of_lives() -> None:
    lives = [Life(100, 0, 2), Life(50, 1, 3), Life(100, 3, 4), Life(10, 0, 4), Life(64, 5, 5)]
    offsets, total = place(lives)
    for i, a in enumerate(lives):
        for k, b in enumerate(lives[:i]):
            if a.first <= b.last and b.first <= a.last:
                assert offsets[i] + a.size <= offsets[k] or offsets[k] + b.size <= offsets[i]
    assert total == 128 + 64 + 10  # the first and the third share a place
    assert all(offset % 64 == 0 for offset in offsets)
