"""Models that are converted to float16 when they are loaded, and held against the float32 file's golden samples."""

from __future__ import annotations

import gc
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from ox.errors import ArgumentError, LoadError
from ox.graph.contract import Contract, Sample, TensorInfo
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model
from ox.serve.runtime import float16
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read

DIMS = ["batch", 8]
ENDS: list[Any] = [{"x": (TensorProto.FLOAT, DIMS)}, {"y": (TensorProto.FLOAT, DIMS)}]
HALF = ModelConfig("cpu", max_rows=4, dtype="float16")


def proven(build: Any, name: str, nodes: Any, weights: dict[str, Any]) -> Path:
    """A file with three golden samples, which are ONNX Runtime's own in float32."""
    random = np.random.default_rng(5)
    inputs = [{"x": random.standard_normal((1, 8)).astype(np.float32)} for _ in range(3)]
    engine = Engine(read(build(name, nodes, *ENDS, weights)), "cpu", 1, 1)
    samples = tuple(Sample(feed, {"y": engine.run(feed)[0]}) for feed in inputs)
    x, y = (TensorInfo(name, "FP32", ("batch", 8)) for name in "xy")
    path: Path = build(name, nodes, *ENDS, weights, contract=Contract((x,), (y,), samples))
    return path


@pytest.fixture
def layer(build: Any) -> Path:
    weights = {"w": np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)}
    return proven(build, "layer", [("MatMul", ["x", "w"], ["h"], {}), ("Tanh", ["h"], ["y"], {})], weights)


def test_weights_are_halves_and_the_interface_is_not(layer: Path) -> None:
    model = Model(layer, HALF, RequestLimits())
    made = model.engine._source.path
    types = {tensor.data_type for tensor in onnx.load(made).graph.initializer}
    assert types == {TensorProto.FLOAT16} and made != layer and model.proof.max_rows == 4
    assert {info.dtype for info in (*model.inputs, *model.outputs)} == {"FP32"}
    feed = {"x": np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)}
    weights = onnx.numpy_helper.to_array(onnx.load(layer).graph.initializer[0]).astype(np.float64)
    got = model.engine.instance(0, 4)((feed,))[0]
    assert got.dtype == np.float32 and np.allclose(got, np.tanh(feed["x"] @ weights), atol=5e-3)
    assert not np.array_equal(got, Model(layer, ModelConfig("cpu"), RequestLimits()).engine.run(feed)[0])
    assert made.exists()
    del model
    gc.collect()
    assert not made.parent.exists()


def test_what_float16_cannot_compute_is_refused_with_figures(build: Any) -> None:
    def shifted(by: float) -> Path:
        """x · small, with weights of which float16 loses the small part."""
        nodes = [("MatMul", ["x", "w"], ["a"], {}), ("MatMul", ["x", "c"], ["b"], {}), ("Sub", ["a", "b"], ["y"], {})]
        small = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
        return proven(build, f"by_{by:g}", nodes, {"w": small + np.float32(by), "c": np.full((8, 8), by, np.float32)})

    with pytest.raises(LoadError, match="does not compute its golden outputs") as caught:
        Model(shifted(200), HALF, RequestLimits())
    assert "max |Δ| ≤ " in str(caught.value.expected) and "max |Δ| " in str(caught.value.got)
    with pytest.raises(LoadError, match="cannot be served in float16") as caught:
        Model(shifted(2000), HALF, RequestLimits())
    assert "%" in caught.value.one_line()


def test_what_is_refused(build: Any, mlp: Path, layer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoadError, match="has no golden samples, and float16 changes its outputs"):
        Model(mlp, HALF, RequestLimits())
    with pytest.raises(ArgumentError, match="unknown dtype"):
        ModelConfig(dtype="bfloat16")
    made = float16.to_float16(read(layer), Contract.from_metadata(read(layer).metadata), LoadControl())[0]
    with pytest.raises(LoadError, match="cannot be served in float16"):  # it is that already
        Model(made.path, HALF, RequestLimits())
    monkeypatch.setattr(float16, "CODE", "import sys; sys.exit('no room')")
    with pytest.raises(LoadError, match="cannot be converted to float16") as caught:
        Model(layer, HALF, RequestLimits())
    assert caught.value.got == "exit code 1: no room"


def test_no_folder_for_it(layer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(layer / "missing"))
    with pytest.raises(LoadError, match="cannot be converted to float16"):
        Model(layer, HALF, RequestLimits())


def test_it_is_ended_with_the_load(layer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float16, "CODE", "input()")
    control = LoadControl()
    control.add_stop(lambda: None)
    add_stop = control.add_stop

    def end(stop: Any) -> None:
        add_stop(stop)
        control.end(LoadError("no longer"))

    monkeypatch.setattr(control, "add_stop", end)
    with pytest.raises(LoadError, match="no longer"):
        Model(layer, HALF, RequestLimits(), control=control)
    assert asdict(HALF)["dtype"] == "float16"
