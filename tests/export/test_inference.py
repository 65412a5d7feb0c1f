"""`ox.export.save(..., optimize="inference")`: a shorter file that computes the same, and is still a module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ox
from ox import nn, tolerance
from ox.errors import ArgumentError


def trained(model: Any, *shape: int) -> Any:
    """The model after its batch norms have seen something."""
    model.train()
    for _ in range(3):
        model(ox.randn(*shape) * 2 + 1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.affine:
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.uniform_(module.bias, -1.0, 1.0)
    return model.eval()


class Tied(nn.Module):
    """Two norms behind one convolution that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first, self.second = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x: Any) -> Any:
        return self.second(self.conv(self.first(self.conv(x))))


class Branches(nn.Module):
    """What the convolution gives is read beside the norm, too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        return self.norm(y) + y


class LastStep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0][:, -1]


IMAGES = (12, 3, 8, 8)
# model, shape of the example, operators left that are named here
MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...], dict[str, int]]] = {
    "Conv": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()), IMAGES, {}),
    "Conv with bias and groups": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.BatchNorm2d(6)), IMAGES, {}),
    "ConvTranspose with groups": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)), IMAGES, {},
    ),
    "Conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4)), (12, 3, 8), {}),
    "Linear": (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, eps=0.1), nn.Tanh()), (12, 5), {}),
    "no weights": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)), IMAGES, {}),
    "first": (lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)), IMAGES, {"BatchNormalization": 1}),
    "read by others": (Branches, IMAGES, {"BatchNormalization": 1}),
    "a weight used twice": (Tied, IMAGES, {"BatchNormalization": 2}),
    "LSTM": (LastStep, (12, 5, 4), {"LSTM": 2}),
}  # fmt: skip
GONE = ("BatchNormalization", "Split", "Concat", "Unsqueeze")


@pytest.mark.parametrize("name", MODELS)
def test_the_file_is_shorter_and_computes_the_same(name: str, tmp_path: Path) -> None:
    make, shape, left = MODELS[name]
    ox.manual_seed(0)
    model, x = trained(make(), *shape), ox.randn(*shape)
    before = {key: t.numpy().copy() for key, t in model.state_dict().items()}
    expected = model(x).detach().numpy()
    ox.export.save(model, tmp_path / "plain.onnx", x)
    ox.export.save(model, tmp_path / "fast.onnx", x, optimize="inference")
    plain, fast = (onnx.load(tmp_path / f"{each}.onnx").graph for each in ("plain", "fast"))
    counts = {op: sum(node.op_type == op for node in fast.node) for op in {*GONE, *left}}
    assert counts == {**dict.fromkeys(GONE, 0), **left}
    assert len(fast.node) < len(plain.node) or left
    session = ort.InferenceSession(tmp_path / "fast.onnx", providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert tolerance.compare(got, expected).ok
    after = {key: t.numpy() for key, t in model.state_dict().items()}
    assert all(np.array_equal(after[key], array) for key, array in before.items()), "the model is as it was"


def test_the_default_keeps_what_fine_tuning_needs(tmp_path: Path) -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), *IMAGES)
    ox.export.save(model, tmp_path / "model.onnx", ox.randn(*IMAGES))
    names = {each.name for each in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert names == set(model.state_dict()) - {"1.num_batches_tracked"}


def test_names_stay_where_they_can(tmp_path: Path) -> None:
    model = trained(
        nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2)), *IMAGES
    )
    ox.export.save(model, tmp_path / "model.onnx", ox.randn(*IMAGES), optimize="inference")
    names = [each.name for each in onnx.load(tmp_path / "model.onnx").graph.initializer]
    assert sorted(names) == ["0.bias", "0.weight", "3.bias", "3.weight"]


def test_a_file_is_still_a_module_that_trains(tmp_path: Path) -> None:
    ox.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)]
    model, x = trained(nn.Sequential(*layers), *IMAGES), ox.randn(*IMAGES)
    ox.export.save(model, tmp_path / "model.onnx", x, optimize="inference")
    loaded = ox.export.load(tmp_path / "model.onnx")
    assert tolerance.compare(loaded(x).detach().numpy(), model(x).detach().numpy()).ok
    optimizer = ox.optim.SGD(loaded.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(loaded(x), ox.arange(12) % 2)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    ox.export.save(loaded, tmp_path / "again.onnx", x, optimize="inference")


def test_a_tied_embedding_is_not_stored_twice(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(500, 64)

        def forward(self, tokens: Any) -> Any:
            return (self.embed(tokens) * 2) @ self.embed.weight.t().exp()

    ox.export.save(Tied(), tmp_path / "model.onnx", ox.randint(0, 500, (12, 3)), optimize="inference")
    weights = onnx.load(tmp_path / "model.onnx").graph.initializer
    assert sum(len(each.raw_data) for each in weights) == 500 * 64 * 4


def test_named_sizes_stay(tmp_path: Path) -> None:
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x = ox.randn(12, 6, 16)
    path = tmp_path / "model.onnx"
    ox.export.save(model, path, x, dims={"src": ["batch", "length", 16]}, optimize="inference")
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for shape in ((1, 3, 16), (5, 9, 16)):
        x = ox.randn(*shape)
        (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        assert tolerance.compare(got, model(x).detach().numpy()).ok


def test_another_optimization_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no optimization 'training'"):
        ox.export.save(nn.ReLU(), tmp_path / "model.onnx", ox.ones(2), optimize="training")
