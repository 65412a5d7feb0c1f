"""Quantization-aware training on a GPU."""

from __future__ import annotations

import pytest

import ox
from ox import nn
from ox.ao import quantization

pytestmark = pytest.mark.gpu


def test_losses_are_those_of_the_cpu() -> None:
    losses = []
    for device in ("cpu", "cuda"):
        ox.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        model.qconfig = quantization.get_default_qat_qconfig()
        prepared = quantization.prepare_qat(model.train()).to(device)
        optimizer, x = ox.optim.SGD(prepared.parameters(), lr=0.1), ox.rand(16, 4).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            loss = (prepared(x) ** 2).mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
