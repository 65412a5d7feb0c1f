"""`activation_memory_budget`: less is kept for the backward, what is cheap runs again there, gradients stay."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from beside_eager import close

import ox
import ox.nn.functional as F
from ox import nn
from ox.errors import ArgumentError


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)
        self.count: Any
        self.register_buffer("count", ox.zeros(()))

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        self.count.add_(1)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)) * self.count)), 0.2, self.training)


def kept(compiled: Any) -> int:
    (plan,) = [plan for plans in compiled._compiled.plans.values() for plan in plans]
    return plan.kept_bytes()


def gradients(model: nn.Module, x: ox.Tensor) -> tuple[Any, list[np.ndarray]]:
    ox.manual_seed(1)
    for _ in range(3):
        model.zero_grad()
        y = model(x)
        y.square().sum().backward()
    return y.detach().numpy(), [p.grad.numpy().copy() for p in model.parameters()]


@pytest.mark.parametrize("backend", ["native", "onnxruntime", "eager"])
def test_gradients_are_those_of_eager_code(backend: str) -> None:
    ox.manual_seed(0)
    eager = nn.Sequential(Block(), Block())
    x = ox.randn(32, 16)
    bytes_kept = []
    for budget in (1.0, 0.6, 0.0):
        model = copy.deepcopy(eager)
        compiled = ox.compile(model, backend=backend, activation_memory_budget=budget)
        y, found = gradients(compiled, x)
        expected, slopes = gradients(copy.deepcopy(eager), x)
        close(y, expected, "result")
        for one, other in zip(found, slopes, strict=True):
            close(one, other, "gradient")
        bytes_kept.append(kept(compiled))
        assert ("run again" in str(compiled.explain())) == (budget < 1)
    # of 64 columns there are the inputs of GELU and of the product behind it, which GELU gives again
    assert bytes_kept[1] <= 0.6 * bytes_kept[0] + 32 * 64 * 4
    assert bytes_kept[2] <= bytes_kept[1] < bytes_kept[0]


def test_what_the_call_overwrites_is_kept() -> None:
    """The buffer has another value when the backward runs."""
    scale = ox.tensor([2.0])

    def call(x: ox.Tensor) -> ox.Tensor:
        y = (x + scale).exp()
        scale.add_(1)
        return y * y

    compiled = ox.compile(call, activation_memory_budget=0)
    for _ in range(3):
        start = float(scale)
        x = ox.tensor([0.1, 0.2], requires_grad=True)
        compiled(x).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(2 * (x.detach().numpy() + start)), rtol=1e-5)


def test_what_is_no_share_is_refused() -> None:
    for wrong in (-0.1, 1.5, "half", None):
        with pytest.raises(ArgumentError, match="activation_memory_budget is no share"):
            ox.compile(lambda x: x, activation_memory_budget=wrong)
