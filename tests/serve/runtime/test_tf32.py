"""Products of float32 on a GPU that are rounded to TF32: on request only, and within the tolerance of float16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_session import TENSORRT, CudaSession
from onnx import TensorProto
from serving_gpu import ServingGpu

from ox.errors import LoadError
from ox.graph.contract import Contract, Sample, TensorInfo
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]

ENDS: list[Any] = [{"x": (TensorProto.FLOAT, ["batch", 64])}, {"y": (TensorProto.FLOAT, ["batch", 64])}]
NODES = [("MatMul", ["x", "w"], ["h"], {}), ("Relu", ["h"], ["r"], {}), ("MatMul", ["r", "w"], ["y"], {})]


@pytest.fixture(scope="module")
def proven(build: Any) -> Path:
    """A file with golden samples, which are the CPU provider's own in float32."""
    weights = {"w": np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)}
    engine = Engine(read(build("plain", NODES, *ENDS, weights)), "cpu", 1, 1)
    random = np.random.default_rng(5)
    feeds = [{"x": random.standard_normal((1, 64)).astype(np.float32)} for _ in range(3)]
    samples = tuple(Sample(feed, {"y": engine.run(feed)[0]}) for feed in feeds)
    x, y = (TensorInfo(name, "FP32", ("batch", 64)) for name in "xy")
    path: Path = build("proven", NODES, *ENDS, weights, contract=Contract((x,), (y,), samples))
    return path


def load(path: Path, device: str = "cuda", **cuda: Any) -> Model:
    return Model(path, ModelConfig(device, max_rows=8, cuda=cuda), RequestLimits())


def tf32(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rounded to 10 bits after the first."""
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of runs without buffers are rounded, as factors are by tensor cores."""
    run = CudaSession.run

    def rounded(session: CudaSession, names: Any, feed: Any, options: Any = None) -> Any:
        return run(session, names, {name: tf32(array) for name, array in feed.items()}, options)

    monkeypatch.setattr(CudaSession, "run", rounded)


def test_a_model_in_float32(proven: Path) -> None:
    """Does not use TF32, as ONNX Runtime would without a word, and gives its golden samples."""
    model = load(proven)
    assert CudaSession.made[0].options["use_tf32"] == "0" and model.proof.max_rows == 8
    assert load(proven, use_tf32=True).proof.max_rows == 8
    assert CudaSession.made[-1].options["use_tf32"] == "1"


@pytest.mark.usefixtures("rounding")
def test_what_is_rounded_is_held_to_the_tolerance_of_float16(proven: Path) -> None:
    with pytest.raises(LoadError, match="does not compute its golden outputs"):
        load(proven)
    assert load(proven, use_tf32=True).proof.max_rows == 8


def test_products_of_float64_are_not_rounded(build: Any) -> None:
    ends: list[Any] = [{name: (TensorProto.DOUBLE, ["batch", 64])} for name in "xy"]
    path = build("double", NODES, *ends, {"w": np.eye(64)})
    assert not load(path, use_tf32=True).engine.uses_tf32


@pytest.mark.usefixtures("rounding")
def test_tensorrt_always_rounds(proven: Path, cuda: ServingGpu) -> None:
    cuda.require(TENSORRT)
    assert load(proven, "tensorrt").proof.max_rows == 8
