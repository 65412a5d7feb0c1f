"""Models under autocast as files: the casts are in them, ONNX Runtime's CPU runs them, and they prove themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ox
from ox import nn
from ox.graph.record.recording import record
from ox.graph.writer.workarounds import between_casts, mixed_bfloat16
from ox.tolerance import compare

LOWER = [ox.bfloat16, ox.float16]


class Encoder(nn.Module):
    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype
        self.embed = nn.Linear(8, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        with ox.autocast("cpu", self.dtype):
            h = self.layer(nn.functional.silu(self.embed(x)))
            return nn.functional.softmax(self.head(h.mean(1)), -1)


def rows(*shape: int) -> ox.Tensor:
    return ox.tensor(np.random.default_rng(7).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_a_transformer(tmp_path: Path, dtype: Any) -> None:
    ox.manual_seed(0)
    model, x, path = Encoder(dtype), rows(12, 6, 8), tmp_path / "m.onnx"
    report = ox.export.save(model, path, x)
    assert report.proof.runtime.startswith("ONNX Runtime") and report.proof.note is None
    assert report.contract.precision == str(dtype) and [row.batch for row in report.rows] == [1, 2, 7]
    # the file holds the casts, and float32 weights under their names
    proto = onnx.load(path)
    to = [a.i for n in proto.graph.node if n.op_type == "Cast" for a in n.attribute if a.name == "to"]
    number = {"bfloat16": onnx.TensorProto.BFLOAT16, "float16": onnx.TensorProto.FLOAT16}[str(dtype)]
    assert to.count(number) > 10 and onnx.TensorProto.FLOAT in to
    assert {t.data_type for t in proto.graph.initializer if t.name.endswith("weight")} == {onnx.TensorProto.FLOAT}
    # each weight is cast once
    cast_weights = [n.input[0] for n in proto.graph.node if n.op_type == "Cast" and n.input[0].endswith("weight")]
    assert len(cast_weights) == len(set(cast_weights)) == 6
    # a stock session runs it, and a loaded one is the same
    model.eval()
    expected = model(x).detach().numpy()
    got = onnxruntime.InferenceSession(path).run(None, {"x": x.numpy()})[0]
    assert got.dtype == np.float32 and compare(got, expected, np.dtype(dtype)).ok
    loaded = ox.export.load(path)
    loaded.eval()
    assert compare(loaded(x).detach().numpy(), expected, np.dtype(dtype)).ok
    # and trains on
    loaded(x).sum().backward()
    assert all(p.grad is not None for p in loaded.parameters())
    again = ox.export.save(loaded, tmp_path / "again.onnx", x)
    assert again.contract.precision == str(dtype)


def test_the_values_in_the_file_are_rounded_where_the_models_are(tmp_path: Path) -> None:
    """In bfloat16 the file gives the very values: between Casts it computes what ox computes."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh())

    def run(x: ox.Tensor) -> ox.Tensor:
        with ox.autocast("cpu"):
            return model(x).float()

    x = rows(12, 8)
    ox.export.save(run, tmp_path / "m.onnx", x)
    got = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x.numpy()})[0]
    exact = run(x).detach().numpy()
    assert (got == exact).mean() > 0.98  # a sum in another order may round the other way
    assert not compare(exact, model(x).detach().numpy()).ok  # which float32 would not give


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_convolutions_recurrences_and_choices(tmp_path: Path, dtype: Any) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.rnn, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 3)

        def forward(self, image: ox.Tensor) -> ox.Tensor:
            with ox.autocast("cpu", dtype):
                h = nn.functional.max_pool2d(nn.functional.gelu(self.norm(self.conv(image))), 2)
                y, _ = self.rnn(h.flatten(2))
                y = ox.cond(image.sum() > 0, lambda y: self.head(y), lambda y: self.head(y) * 2, (y,))
            return y.float()

    report = ox.export.save(Net(), tmp_path / "m.onnx", rows(12, 1, 8, 4))
    assert report.proof.runtime.startswith("ONNX Runtime")


def test_called_inside_a_region_and_bfloat16_at_the_end(tmp_path: Path) -> None:
    model, x = nn.Linear(4, 3), rows(12, 4)
    with ox.autocast("cpu"):
        report = ox.export.save(model, tmp_path / "m.onnx", x)
    assert report.contract.outputs[0].dtype == "BF16"
    assert str(onnx.load(tmp_path / "m.onnx").graph.output[0].type.tensor_type.elem_type) == "16"
    loaded = ox.export.load(tmp_path / "m.onnx")
    assert loaded(x).dtype == ox.bfloat16


def test_a_file_that_is_wrong_still_fails_its_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is allowed for bfloat16 does not let a defect pass."""
    from ox.export import proof

    run = proof.Runtime.run

    def wrong(self: Any, feed: Any) -> Any:
        return {name: y + np.float32(0.2) if name == "output" else y for name, y in run(self, feed).items()}

    monkeypatch.setattr(proof.Runtime, "run", wrong)
    with pytest.raises(ox.errors.ExportError, match="gives another"):
        ox.export.save(Encoder(ox.bfloat16), tmp_path / "m.onnx", rows(12, 6, 8))
    assert not (tmp_path / "m.onnx").exists()


def test_only_mixed_graphs_are_rewritten() -> None:
    model, x = nn.Linear(4, 3), rows(2, 4)
    plain = record(model, {"x": x})
    assert not mixed_bfloat16(plain)
    whole = record(model.to(ox.bfloat16), {"x": x.bfloat16()}, constants=dict(model.named_parameters()))
    assert not mixed_bfloat16(whole)
    model = model.float()
    with ox.autocast("cpu"):
        mixed = record(model, {"x": x}, constants=dict(model.named_parameters()))
    assert mixed_bfloat16(mixed)
    types = {n.op_type: {v.dtype for v in n.inputs if v is not None} for n in between_casts(mixed).nodes}
    assert types["Gemm"] == {ox.float32}


def test_the_server_takes_such_a_file(tmp_path: Path) -> None:
    from ox.graph.contract import Contract

    ox.export.save(Encoder(ox.bfloat16), tmp_path / "m.onnx", rows(12, 6, 8))
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "m.onnx").metadata_props}
    contract = Contract.from_metadata(metadata)
    assert metadata["ox.precision"] == "bfloat16" and contract.through == np.dtype(ox.bfloat16)
    assert Contract.from_metadata({"ox.precision": "nonsense"}).through is None


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_a_whole_step_is_recorded_as_what_it_is(dtype: Any) -> None:
    """Forward under autocast, backward and the gradients as one graph, which gives what eager code gives."""
    from ox.graph.replay import values

    model, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)), rows(6, 4)
    labels = ox.tensor([0, 1, 2, 0, 1, 2])

    def step(x: ox.Tensor) -> dict[str, ox.Tensor]:
        with ox.autocast("cpu", dtype):
            loss = nn.functional.cross_entropy(model(x), labels) + nn.functional.mse_loss(model(x), ox.ones(6, 3))
        grads = ox.autograd.grad(loss, list(model.parameters()))
        return {"loss": loss, **{f"g{i}": g for i, g in enumerate(grads)}}

    eager = step(x)
    graph = record(step, {"x": x}, constants=dict(model.named_parameters()))
    casts = [n for n in graph.nodes if n.op_type == "Cast" and n.inputs[0] in graph.owned]
    assert len(casts) == 4  # each parameter once, though the model ran twice
    with ox.no_grad():
        known = values(graph, [x])
    for v in graph.outputs:
        np.testing.assert_allclose(known[v].array, eager[v.name].detach().array, atol=1e-6)


def test_a_scaler_cannot_be_recorded() -> None:
    scaler, w = ox.GradScaler("cpu"), nn.Parameter(rows(3))
    with pytest.raises(ox.errors.RecordError, match="GradScaler looks at values"):
        record(lambda x: scaler.scale((x * w).sum()), {"x": rows(3)})
