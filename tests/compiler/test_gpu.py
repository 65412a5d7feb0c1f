"""Compiled calls on a GPU."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from beside_eager import close, reasons, recordings

import ox
from ox import nn

pytestmark = pytest.mark.gpu


def training(compiled: bool) -> tuple[nn.Module, list[float]]:
    ox.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to("cuda")
    optimizer = ox.optim.Adam(model.parameters(), lr=0.01)

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = ox.compile(step) if compiled else step
    x, target = ox.randn(4, 8).to("cuda"), ox.tensor([0, 1, 2, 0]).to("cuda")
    losses = [run(x, target).item() for _ in range(5)]
    if compiled:
        assert len(recordings(run)) == 1 and not reasons(run), reasons(run)
    return model, losses


def test_a_step_equals_the_eager_one() -> None:
    (eager, wanted), (compiled, got) = training(False), training(True)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    for name, t in eager.state_dict().items():
        close(compiled.state_dict()[name].cpu().numpy(), t.cpu().numpy(), name)
        assert compiled.state_dict()[name].device.type == "cuda"


def test_a_gradient_that_starts_from_a_constant_of_the_device() -> None:
    """That of a sum, which needs nothing of the call."""
    losses = []
    for compiled in (False, True):
        ox.manual_seed(0)
        model = nn.Linear(3, 2).to("cuda")
        optimizer = ox.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = ox.compile(step) if compiled else step
        x = ox.ones(4, 3, device="cuda")
        losses.append([run(x).item() for _ in range(4)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert not reasons(run), reasons(run)


def test_engines_for_cpus_leave_a_call_eager() -> None:
    compiled = ox.compile(lambda x: x * 2, backend="onnxruntime")
    x = ox.ones(3).to("cuda")
    for _ in range(2):
        assert compiled(x).cpu().tolist() == [2, 2, 2]
    assert "computes on CPUs" in reasons(compiled)


def test_code_of_cupy_is_no_code_of_the_user() -> None:
    """Wherever it lies: it catches errors of its own, for which a call would copy its state to give it back."""
    import cupy

    from ox.compiler.recording.guard_source import is_library

    folder = os.path.dirname(cupy.__file__)
    for file in (cupy.__file__, f"{folder}/_core/syncdetect.py", f"{folder}x/__init__.py"):
        assert is_library(file), file
    assert not is_library(f"{folder}_of_mine/train.py".replace("site-packages", "work")) and not is_library(__file__)
