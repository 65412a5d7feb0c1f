"""What PyTorch exports, ox loads: the same numbers in eval mode, the same gradients, the same names."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ox

torch = pytest.importorskip("torch")


class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Convolutions, normalization, pooling, dropout, old attributes of many operators."""

    def __init__(self) -> None:
        super().__init__()
        n = torch.nn
        self.stem = n.Sequential(n.Conv2d(2, 4, 3, padding=1), n.BatchNorm2d(4), n.ReLU6(), n.MaxPool2d(2))
        self.norm, self.head = n.LayerNorm(4), n.Linear(4, 3)
        self.drop = n.Dropout(0.2)

    def forward(self, x: Any) -> Any:
        y = self.stem(x)
        y = torch.nn.functional.interpolate(y, scale_factor=2, mode="nearest")
        y = torch.nn.functional.pad(y[:, :, 1:-1], (1, 0, 0, 2), value=0.5).clamp(-1, 1)
        y = self.norm(y.mean((2, 3)).squeeze(-1)) if y.dim() == 3 else self.norm(y.mean((2, 3)))
        return torch.nn.functional.softmax(self.head(self.drop(y)), 1)


class Recurrent(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cells, self.out = kind(4, 5, 2, batch_first=True, bidirectional=True), torch.nn.Linear(10, 2)

    def forward(self, x: Any) -> Any:
        return self.out(self.cells(x)[0]).sum(1)


class Words(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix = torch.nn.Embedding(7, 4), torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, x: Any) -> Any:
        values, _ = self.mix(self.table(x)).topk(2, -1)
        return values.split([1, 1], -1)[0] + values.unsqueeze(0).squeeze(0).cumsum(1)


def images() -> Any:
    return torch.randn(3, 2, 6, 6)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[int, ...]]] = {
    "Block": (Block, images, (9, 11, 13, 17)),
    "LSTM": (lambda: Recurrent(torch.nn.LSTM), lambda: torch.randn(3, 6, 4), (9, 14, 18)),
    "GRU": (lambda: Recurrent(torch.nn.GRU), lambda: torch.randn(3, 6, 4), (11, 17)),
    "RNN": (lambda: Recurrent(torch.nn.RNN), lambda: torch.randn(3, 6, 4), (11, 17)),
    "Words": (Words, lambda: torch.randint(0, 7, (3, 5)), (14, 18)),
}


@pytest.mark.parametrize(("name", "opset"), [(n, v) for n, (_, _, versions) in MODELS.items() for v in versions])
def test_exported_by_pytorch(name: str, opset: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, inputs, _ = MODELS[name]
    model, x = make().eval(), inputs()
    for p in model.parameters():  # the exporter writes equal ones, all zeros say, once
        p.data += 0.01 * torch.randn_like(p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (x,), str(tmp_path / "m.onnx"), opset_version=opset, dynamo=False, input_names=["x"],
            dynamic_axes={"x": {0: "n"}}, do_constant_folding=False,
        )  # fmt: skip
    net = ox.export.load(tmp_path / "m.onnx").eval()
    y, expected = net(ox.tensor(x.numpy())), model(x)
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), atol=1e-5)
    y.square().sum().backward()
    expected.square().sum().backward()
    own, theirs = dict(net.named_parameters()), dict(model.named_parameters())
    shared = [n for n in theirs if n in own and own[n].shape == tuple(theirs[n].shape)]
    assert shared
    for n in shared:
        np.testing.assert_allclose(own[n].grad.numpy(), theirs[n].grad.numpy(), atol=1e-4, err_msg=n)
