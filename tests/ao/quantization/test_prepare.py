"""prepare_qat, convert and fuse_modules, up to the file in ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from int8_products import skip_if_they_saturate

import ox
from ox import nn
from ox.ao import quantization as q
from ox.data import DataLoader, TensorDataset
from ox.errors import ArgumentError
from ox.graph.contract import Contract
from ox.graph.reader.model_file import metadata_of
from ox_models.digits import LeNet
from ox_models.digits_data import split

ROWS = [["strokes.0", "strokes.1", "strokes.2"], ["shapes.0", "shapes.1", "shapes.2"], ["head.1", "head.2"]]
TRAIN, _, TEST = split()


def fit(model: nn.Module, epochs: int, lr: float) -> None:
    optimizer, loss = ox.optim.AdamW(model.parameters(), lr=lr), nn.CrossEntropyLoss()
    model.train()
    for _ in range(epochs):
        for x, y in DataLoader(TensorDataset(*TRAIN), batch_size=64, shuffle=True):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    model.eval()


def scores(model: nn.Module) -> Any:
    with ox.no_grad():
        return model(ox.from_numpy(TEST[0])).numpy()


def accuracy(found: Any) -> float:
    return float((found.argmax(1) == TEST[1]).mean())


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    ox.manual_seed(0)
    model = LeNet()
    fit(model, 4, 0.01)
    return model


@pytest.mark.parametrize(
    "make",
    [q.get_default_qat_qconfig, q.get_learnable_qat_qconfig, lambda: q.get_learnable_qat_qconfig(weight=ox.int4)],
    ids=["int8", "learned int8", "learned int4"],
)
def test_digits(make: Callable[[], q.QConfig], trained: nn.Module, tmp_path: Path) -> None:
    """Within 1 % of float; the file is what was trained, within one step of the outputs. Where another rounding moves a
    value inside to the next step, a few outputs are further away."""
    skip_if_they_saturate()
    qconfig, path = make(), tmp_path / "digits.onnx"
    wrapped = q.QuantWrapper(q.fuse_modules(trained, ROWS))
    wrapped.qconfig = qconfig  # type: ignore[assignment]
    prepared = q.prepare_qat(wrapped.train())
    fit(prepared, 2, 0.001)
    fake = scores(prepared)
    assert accuracy(fake) > accuracy(scores(trained)) - 0.01
    done = q.convert(prepared)
    assert np.array_equal(scores(done), fake)
    ox.export.save(done, path, TEST[0][:32], input_names=["image"])
    (theirs,) = ort.InferenceSession(str(path)).run(None, {"image": TEST[0]})
    (_, post) = (done.module.head[3], done.module.head[3].activation_post_process)  # type: ignore[union-attr,index]
    step = post.scale.item()
    away = np.abs(theirs - fake) / step
    assert (away > 1.001).mean() < 0.002 and away.max() < 4
    assert abs(accuracy(theirs) - accuracy(fake)) < 0.01
    kinds = Counter(onnx.TensorProto.DataType.Name(t.data_type) for t in onnx.load(path).graph.initializer if t.dims)
    assert kinds["INT4" if "int4" in str(done) else "INT8"] == 8  # four weights, and their zero points
    contract = Contract.from_metadata(metadata_of(onnx.load(path)))
    assert contract.tolerance is not None and step * 0.999 <= contract.tolerance < 6 * step


def test_integers_compute_in_the_file(trained: nn.Module, tmp_path: Path) -> None:
    """ONNX Runtime finds its integer kernels."""
    skip_if_they_saturate()
    wrapped = q.QuantWrapper(q.fuse_modules(trained, ROWS))
    wrapped.qconfig = q.get_default_qat_qconfig()  # type: ignore[assignment]
    prepared = q.prepare_qat(wrapped.train())
    prepared(ox.from_numpy(TRAIN[0][:64]))
    ox.export.save(q.convert(prepared.eval()), tmp_path / "a.onnx", TEST[0][:32])
    options = ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "fused.onnx"), 3
    ort.InferenceSession(str(tmp_path / "a.onnx"), options, providers=["CPUExecutionProvider"])
    assert sum(n.op_type.startswith("QLinearConv") for n in onnx.load(tmp_path / "fused.onnx").graph.node) == 2


def test_fused_modules_compute_the_same(trained: nn.Module) -> None:
    fused = q.fuse_modules(trained, ROWS)
    assert isinstance(fused.strokes[1], nn.Identity) and isinstance(trained.strokes[1], nn.BatchNorm2d)  # type: ignore[index,union-attr]
    assert np.allclose(scores(fused), scores(trained), atol=1e-4)


def test_a_part_stays_in_float() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model.qconfig = q.get_default_qat_qconfig()  # type: ignore[assignment]
    model[1].qconfig = None
    prepared = q.prepare_qat(model)
    prepared(ox.randn(8, 4))
    assert "fake" in str(prepared[0]) and prepared[1].weight is not None and type(prepared[1]) is nn.Linear  # type: ignore[index]
    done = q.convert(prepared.eval())
    assert done[0].weight.dtype == ox.int8 and done[1].weight.dtype == ox.float32  # type: ignore[index,union-attr]


@pytest.mark.parametrize("make", [q.get_default_qat_qconfig, q.get_learnable_qat_qconfig])
def test_its_state_is_loaded(make: Callable[[], q.QConfig]) -> None:
    def prepared() -> nn.Module:
        model = q.QuantWrapper(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
        model.qconfig = make()  # type: ignore[assignment]
        return q.prepare_qat(model)

    one, two, x = prepared(), prepared(), ox.randn(16, 4)
    one(x)
    two.load_state_dict(one.state_dict())
    assert np.array_equal(one.eval()(x).detach().numpy(), two.eval()(x).detach().numpy())


def test_what_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with pytest.raises(ArgumentError, match=r"no module is to be quantized[^~]*qconfig"):
        q.prepare_qat(model)
    model.qconfig = q.get_default_qat_qconfig()  # type: ignore[assignment]
    with pytest.raises(ArgumentError, match="in train mode"):
        q.prepare_qat(model.eval())
    with pytest.raises(ArgumentError, match="is not prepared"):
        q.convert(model)
    prepared = q.prepare_qat(model.train())
    with pytest.raises(ArgumentError, match="prepared already"):
        q.prepare_qat(prepared)
    with pytest.raises(ArgumentError, match="in eval mode"):
        q.convert(prepared)
    with pytest.raises(ArgumentError, match=r"has seen no values[^~]*in +0"):
        q.convert(prepared.eval())
    with pytest.raises(ArgumentError, match=r"cannot be fused[^~]*1 Tanh"):
        q.fuse_modules(model, ["0", "1"])
