"""Writes through `p.data` and `p.detach()` inside a compiled step, and results that are such tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from beside_eager import recordings

import ox
from ox import nn

After = Callable[[nn.Module, Any], Any]


def clamped(model: nn.Module, loss: Any) -> Any:
    for p in model.parameters():
        p.data.clamp_(-0.01, 0.01)
    return loss


def halved(model: nn.Module, loss: Any) -> Any:
    model.weight.detach().mul_(0.5)
    return loss


def item_set(model: nn.Module, loss: Any) -> Any:
    model.weight.data[0] = 3.0
    return loss


def copied(model: nn.Module, loss: Any) -> Any:
    model.weight.data.copy_(model.bias.data * 2)
    return loss


def twice(model: nn.Module, loss: Any) -> Any:
    model.weight.data.mul_(0.5)
    model.weight.data.add_(1.0)
    return loss


def replaced(model: nn.Module, loss: Any) -> Any:
    model.weight.data = model.weight.data * 2
    return loss


def gradient_replaced(model: nn.Module, loss: Any) -> Any:
    model.weight.grad.data = model.weight.grad.data * 2
    return loss


def training(after: After) -> tuple[nn.Module, Callable[[Any], Any]]:
    ox.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = ox.optim.SGD(model.parameters(), lr=1.0)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = -model(x).mean()
        loss.backward()
        optimizer.step()
        return after(model, loss.detach())

    return model, step


@pytest.mark.parametrize("after", [clamped, halved, item_set, copied, twice, replaced, gradient_replaced])
def test_writes_after_the_step(after: After) -> None:
    (eager, step), (model, other) = training(after), training(after)
    compiled = ox.compile(other)
    for _ in range(5):
        assert ox.allclose(compiled(ox.ones(4, 2)), step(ox.ones(4, 2)))
        for p, q in zip(model.parameters(), eager.parameters(), strict=True):
            assert ox.allclose(p, q) and ox.allclose(p.grad, q.grad)
    if after in (clamped, halved, item_set):
        assert recordings(compiled)


@pytest.mark.parametrize("after", [lambda m, _: m.weight.detach(), lambda m, _: m.weight.data])
def test_a_result_is_the_live_weight(after: After) -> None:
    model, step = training(after)
    compiled = ox.compile(step)
    for _ in range(4):
        assert compiled(ox.ones(4, 2)).array is model.weight.array


def test_a_write_alone() -> None:
    p = nn.Parameter(ox.ones(2))

    @ox.compile
    def double(x: Any) -> Any:
        p.data.mul_(2.0)
        return x + 1

    for _ in range(4):
        double(ox.ones(1))
    np.testing.assert_array_equal(p.detach().numpy(), [16, 16])
