"""int4, int2, 8-bit floats and float4 in files: written, run by ONNX Runtime, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from rows import rows

import ox
from ox import nn, ops
from ox.dtypes import FLOAT8, NARROW, PACKED, onnx_type
from ox.errors import DTypeError

OPSETS = {**dict.fromkeys(FLOAT8, 21), ox.int4: 21, ox.uint4: 21, ox.int2: 25, ox.uint2: 25, ox.float4_e2m1fn: 23}
X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32) * 3


def through(dtype: Any) -> Any:
    scale = ox.tensor(0.25)
    return lambda x: ops.DequantizeLinear(ops.QuantizeLinear(x, scale, output_dtype=onnx_type(dtype)), scale)


@rows("dtype", NARROW, ids=str)
def test_activations_of_a_type(dtype: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    report = ox.export.save(through(dtype), path, X)
    assert report.opset == OPSETS[dtype]
    assert report.proof.runtime.startswith("onnx.reference" if dtype == ox.float4_e2m1fn else "ONNX Runtime")
    with ox.no_grad():
        y = ox.export.load(path)(ox.from_numpy(X)).numpy()
    wanted = np.clip(X / 0.25, float(_info(dtype).min), float(_info(dtype).max))
    if dtype in PACKED and dtype != ox.float4_e2m1fn:
        wanted = np.rint(wanted)
    assert np.array_equal(y, wanted.astype(dtype).astype(np.float32) * 0.25)
    if dtype != ox.float4_e2m1fn:
        (theirs,) = ort.InferenceSession(str(path)).run(None, {"x": X})
        assert np.array_equal(theirs, y)


def _info(dtype: Any) -> Any:
    return (ml_dtypes.finfo if dtype in FLOAT8 or dtype == ox.float4_e2m1fn else ml_dtypes.iinfo)(dtype)  # type: ignore[no-untyped-call]


class Stored(nn.Module):
    """A product with a weight of a small type, in operators that ONNX Runtime does not fuse: its fused product takes 8
    for the zero point that uint4 and uint2 do not have (1.32)."""

    def __init__(self, dtype: Any, rows: int) -> None:
        super().__init__()
        weight = np.random.default_rng(1).integers(0, 2, (rows, 5)).astype(np.float32)
        self.register_buffer("weight", ox.from_numpy(weight).to(dtype))
        self.register_buffer("scale", ox.tensor(0.5))

    def forward(self, x: Any) -> Any:
        return (x.unsqueeze(-1) * ops.DequantizeLinear(self.weight, self.scale)).sum(1)


@rows("dtype", [t for t in NARROW if t != ox.float4_e2m1fn], ids=str)
@rows("external", [False, True])
def test_weights_of_a_type(dtype: Any, external: bool, tmp_path: Path) -> None:
    """An odd number of elements, and so large that they stand in a file of their own."""
    model, path = Stored(dtype, 1001), tmp_path / "model.onnx"
    x = np.random.default_rng(0).normal(size=(4, 1001)).astype(np.float32)
    report = ox.export.save(model, path, x, golden=None, external_above=100 if external else 1 << 30)
    assert (report.data is not None) == external
    bits = ml_dtypes.iinfo(dtype).bits if dtype in PACKED else 8
    assert report.size < 1001 * 5 * bits / 8 + 8000
    loaded = ox.export.load(path)
    assert loaded.state["weight"].dtype == dtype
    assert np.array_equal(loaded.state["weight"].array.astype(np.float32), model.weight.array.astype(np.float32))
    ox.export.save(loaded, tmp_path / "again.onnx", x, golden=None)
    one, two = (onnx.load(tmp_path / name).graph.initializer[0] for name in ("model.onnx", "again.onnx"))
    assert one.raw_data == two.raw_data and one.data_type == two.data_type == onnx_type(dtype)


def test_a_quantized_file_is_loaded(network: Path, images: Any, scores: Any, tmp_path: Path) -> None:
    path = tmp_path / "int4.onnx"
    report = ox.export.quantize(network, path, "int4", calibration=images)
    with ox.no_grad():
        y = ox.export.load(path)(ox.from_numpy(images)).numpy()
    assert report.contract.tolerance is not None
    assert np.abs(y - scores(path, images)).max() < report.contract.tolerance / 2


def test_other_operators_refuse_them() -> None:
    with pytest.raises(DTypeError, match="int4"):
        ops.Add(ox.ones(2).to(ox.int4), ox.ones(2).to(ox.int4))


def test_numbers_beyond_the_ends() -> None:
    x = ox.tensor([1e6, -1e6, float("inf"), float("nan"), 0.3])
    assert x.to(ox.float8_e4m3fn).float().tolist()[:3] == [448, -448, 448]
    assert np.isnan(x.to(ox.float8_e4m3fn).float().numpy()[3])
    loose = ops.Cast(x, to=onnx_type(ox.float8_e5m2), saturate=0).float().tolist()
    assert loose[:3] == [float("inf"), float("-inf"), float("inf")]


@rows("dtype", NARROW, ids=str)
def test_checkpoints_of_a_type(dtype: Any, tmp_path: Path) -> None:
    x = ox.tensor([0.0, 1.0, -1.0, 6.0]).abs().to(dtype)
    ox.save({"x": x, "y": np.stack([x.array, x.array]).T}, tmp_path / "state.ox")
    back = ox.load(tmp_path / "state.ox")
    assert back["x"].dtype == dtype and back["x"].float().tolist() == x.float().tolist()
    assert np.array_equal(back["y"].astype(np.float32)[:, 1], x.float().numpy())
