"""Files of models that lie on a GPU, which they do afterwards, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn

pytestmark = pytest.mark.gpu


def model() -> Any:
    ox.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))


@pytest.mark.parametrize("example", ["cuda", "cpu"])
def test_a_model_on_a_gpu_is_saved(example: str, tmp_path: Path) -> None:
    net = model().to("cuda")
    optimizer = ox.optim.Adam(net.parameters())
    x = ox.randn(4, 1, 8, 8, device="cuda")
    for _ in range(2):
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()
    arrays = [each for p in net.parameters() if p.grad is not None for each in (p.array, p.grad.array)]
    ox.export.save(net, tmp_path / "m.onnx", x.to(example))
    after = [each for p in net.parameters() if p.grad is not None for each in (p.array, p.grad.array)]
    assert len(after) == 12 and all(a is b for a, b in zip(after, arrays, strict=True)) and net.training
    loaded = ox.export.load(tmp_path / "m.onnx")
    wanted = net.eval()(x).detach().cpu().numpy()
    np.testing.assert_allclose(loaded(x.cpu()).detach().numpy(), wanted, rtol=1e-4, atol=1e-5)
    again = loaded.to("cuda")
    ox.export.save(again, tmp_path / "again.onnx", x)
    np.testing.assert_allclose(again(x).detach().cpu().numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_a_failed_export_leaves_it_there(tmp_path: Path) -> None:
    class Fixed(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) + float(x.sum())

    net = Fixed(3, 2).to("cuda")
    with pytest.raises(ox.OxError):
        ox.export.save(net, tmp_path / "m.onnx", ox.ones(2, 3))
    assert net.weight.is_cuda and net.bias is not None and net.bias.is_cuda
