"""Files with integers for weights: what of them learns, and their way back into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from int8_products import skip_if_they_saturate

import ox
from ox import nn
from ox.errors import LoadError
from ox.onnx_module.fine_tune import FineTuned

ROWS = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
TARGETS = ox.tensor(np.arange(64) % 3)


@pytest.fixture(scope="module")
def float32(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ox.manual_seed(0)
    path = tmp_path_factory.mktemp("float32") / "model.onnx"
    model = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 3))
    ox.export.save(model, path, ROWS)
    return path


def quantized(float32: Path, scheme: str, tmp_path: Path) -> Any:
    path = tmp_path / "small.onnx"
    ox.export.quantize(float32, path, scheme, calibration=ROWS)
    return ox.export.load(path)


def test_what_is_beside_int4_weights_learns(float32: Path, tmp_path: Path) -> None:
    """The biases, and the weight that is too small for a block; and the result is a file again."""
    net = quantized(float32, "int4", tmp_path)
    assert net.quantized == {"int4": 32 * 32 + 32 * 16}
    assert sum(p.numel() for p in net.parameters()) == 32 + 16 + 16 * 3 + 3
    before = {name: x.array.astype(np.float32) for name, x in net.state.items()}
    model, loss = FineTuned(net, "all", None, [ROWS[:2]]), nn.CrossEntropyLoss()
    optimizer = ox.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        value = loss(model(ox.tensor(ROWS)), TARGETS)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.9 * losses[0]
    moved = {name for name, x in net.state.items() if not np.array_equal(x.array.astype(np.float32), before[name])}
    assert moved == set(dict(net.named_parameters()))
    ox.export.save(model.exported(), tmp_path / "tuned.onnx", ROWS)
    (y,) = ort.InferenceSession(str(tmp_path / "tuned.onnx")).run(None, {"input": ROWS})
    with ox.no_grad():
        assert np.abs(net.eval()(ox.tensor(ROWS)).numpy() - y).max() < 0.05


def test_what_comes_after_the_last_rounding_learns(float32: Path, tmp_path: Path) -> None:
    net = quantized(float32, "int8-dynamic", tmp_path)
    assert [p.numel() for p in net.parameters()] == [3, 3]  # the bias of the head, and the factors of its sums
    assert net.quantized == {"int8": 32 * 32 + 32 * 16 + 16 * 3}


def test_nothing_of_a_calibrated_file_learns(float32: Path, tmp_path: Path) -> None:
    net = quantized(float32, "int8", tmp_path)
    with pytest.raises(
        LoadError, match=r"nothing in this quantized file can learn[^~]*1,584 weights in int8[^~]*ox\.ao"
    ):
        FineTuned(net, "all", None, [ROWS[:2]])


def test_a_calibrated_file_is_written_back(float32: Path, tmp_path: Path) -> None:
    """Within the rounding of its integers."""
    skip_if_they_saturate()
    net = quantized(float32, "int8", tmp_path)
    report = ox.export.save(net, tmp_path / "again.onnx", ROWS)
    assert report.contract.tolerance is not None and report.contract.tolerance < 0.1


@pytest.mark.parametrize("scheme", ["float16", "bfloat16"])
def test_all_of_a_half_precision_file_learns(scheme: str, float32: Path, tmp_path: Path) -> None:
    net = quantized(float32, scheme, tmp_path)
    assert not net.quantized and sum(p.numel() for p in net.parameters()) == 32 * 33 + 33 * 16 + 17 * 3


class Precise(nn.Module):
    """In float16 as a whole, its inputs and outputs too."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(32, 16), nn.Linear(16, 3)

    def forward(self, rows: Any) -> Any:
        return ox.cond(
            (rows.float().mean() > 9), lambda x: x * 2, lambda x: x * 1, (self.head(self.body(rows).relu()),)
        )


@pytest.mark.parametrize("ends", ["float32", "float16"])
def test_a_float16_file_learns_in_float32(ends: str, float32: Path, tmp_path: Path) -> None:
    """With the settings of every recipe: in float16 Adam's eps is 0, and the first step divides by it."""
    path, rows = tmp_path / "half.onnx", ROWS
    if ends == "float32":
        ox.export.quantize(float32, path, "float16")
    else:
        rows = ROWS.astype(np.float16)
        ox.export.save(Precise().to(ox.float16), path, rows)
    net = ox.export.load(path)
    with ox.no_grad():
        before = net(ox.tensor(rows)).numpy()
    model, loss = FineTuned(net, "all", None, [rows[:2]]), nn.CrossEntropyLoss()
    assert model.widened and {p.dtype for p in model.parameters()} == {ox.float32}
    scores = model(ox.tensor(rows))
    assert scores.dtype == ox.float32 and np.abs(scores.detach().numpy() - before).max() < 1e-2
    optimizer = ox.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(model(ox.tensor(rows)), TARGETS)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.7 * losses[0]
    report = ox.export.save(model.exported(), tmp_path / "tuned.onnx", rows)
    session = ort.InferenceSession(str(tmp_path / "tuned.onnx"))
    (y,) = session.run(None, {session.get_inputs()[0].name: rows})
    assert y.dtype == before.dtype and len(report.contract.samples) == 3
    assert np.abs(y - model(ox.tensor(rows)).detach().numpy()).max() < 1e-2 * np.abs(y).max()
    again = FineTuned(ox.export.load(tmp_path / "tuned.onnx"), "all", None, [rows[:2]])
    assert not again.widened


@pytest.fixture(scope="module")
def one_score(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ox.manual_seed(0)
    path = tmp_path_factory.mktemp("one") / "score.onnx"
    ox.export.save(nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1)), path, ROWS)
    return path


@pytest.mark.parametrize("scheme", ["float16", "bfloat16", "int4"])
def test_the_bias_of_one_score_learns(scheme: str, one_score: Path, tmp_path: Path) -> None:
    model = FineTuned(quantized(one_score, scheme, tmp_path), "all", None, [ROWS[:2]])
    assert sorted(p.numel() for p in model.parameters() if p.requires_grad)[0] == 1
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("classes", [None, 5])
def test_the_head_of_a_bfloat16_file(classes: int | None, float32: Path, tmp_path: Path) -> None:
    """Its weights are cast before the layer reads them."""
    net = quantized(float32, "bfloat16", tmp_path)
    model = FineTuned(net, "head", classes, [ROWS[:2]])
    scores = 3 if classes is None else classes
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 17 * scores
    assert model(ox.tensor(ROWS)).shape == (64, scores)
    ox.export.save(model.exported(), tmp_path / "tuned.onnx", ROWS)
    assert ort.InferenceSession(str(tmp_path / "tuned.onnx")).run(None, {"input": ROWS})[0].shape == (64, scores)


def test_the_head_of_an_int4_file(tmp_path: Path) -> None:
    path = tmp_path / "wide.onnx"
    ox.export.save(nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 8)), path, ROWS)
    with pytest.raises(
        LoadError, match=r"head of the file is quantized[^~]*floating weights[^~]*int4[^~]*float32 file"
    ):
        FineTuned(quantized(path, "int4", tmp_path), "head", None, [ROWS[:2]])
