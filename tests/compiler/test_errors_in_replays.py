"""Calls that raise for the values of tensors, and nobody inside catches it: they leave what eager code leaves."""

from __future__ import annotations

from typing import Any

import pytest
from beside_eager import recordings

import ox
import ox.nn.functional as F
from ox import nn
from ox.errors import OxError

ENGINES = ["native", "eager", "onnxruntime", "openvino"]


def run(backend: str | None) -> list[Any]:
    """A model whose labels are wrong once, then once more: losses, generators and buffers."""
    ox.manual_seed(0)
    own = ox.Generator(5)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    optimizer = ox.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any, t: Any) -> Any:
        optimizer.zero_grad()
        noise = ox.rand(6, 4, generator=own)
        loss = F.cross_entropy(model(x + noise), t)
        loss = loss + F.dropout(x, 0.5).mean() + ox.rand(6, generator=own).mean()  # not before an error
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled: Any = step if backend is None else ox.compile(step, backend=backend)
    found: list[Any] = []
    for i in range(8):
        x, t = ox.randn(6, 4), ox.randint(0, 3, (6,))
        if i in (3, 5):
            t[2] = 7
        try:
            found.append(compiled(x, t).item())
        except OxError as error:
            found += [error.what, model[0].weight.grad is None]
        found.append(int(own.counter))
        found += [each.sum().item() for each in model[1].buffers()]
    if backend is not None:
        assert recordings(compiled)
    return found


@pytest.mark.parametrize("backend", ENGINES)
def test_generators_and_buffers_after_an_error(backend: str) -> None:
    if backend == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    for one, other in zip(run(backend), run(None), strict=True):
        assert one == (pytest.approx(other, abs=1e-5) if isinstance(other, float) else other)
