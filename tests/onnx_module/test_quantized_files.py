"""Files with integers for weights: what of them learns, and their way back into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

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
    net = quantized(float32, "int8", tmp_path)
    report = ox.export.save(net, tmp_path / "again.onnx", ROWS)
    assert report.contract.tolerance is not None and report.contract.tolerance < 0.1


@pytest.mark.parametrize("scheme", ["float16", "bfloat16"])
def test_all_of_a_half_precision_file_learns(scheme: str, float32: Path, tmp_path: Path) -> None:
    net = quantized(float32, scheme, tmp_path)
    assert not net.quantized and sum(p.numel() for p in net.parameters()) == 32 * 33 + 33 * 16 + 17 * 3
