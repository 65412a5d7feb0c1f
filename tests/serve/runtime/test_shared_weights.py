"""Sessions on one GPU share the weights that ONNX Runtime's optimizer leaves as they are in the file."""

from __future__ import annotations

import asyncio
import gc
import logging
import tempfile
import weakref
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cuda_session import CudaSession
from onnx import TensorProto
from serving_gpu import ServingGpu

from ox.devices.gpu.cupy_device import empty_cache, memory
from ox.errors import DeviceError, LoadError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model
from ox.serve.runtime import providers, session, shared_weights
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]

X = {"x": (TensorProto.FLOAT, ["batch", 64, 64])}
Y = {"y": (TensorProto.FLOAT, ["batch", 64, 64])}
W = {"w": np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)}
SWAP = {"perm": [0, 2, 1]}


@pytest.fixture
def added(build: Any) -> Path:
    """x + w, which ONNX Runtime's CPU provider does not pack."""
    path: Path = build("added", [("Add", ["x", "w"], ["y"], {})], X, Y, W)
    return path


def load(path: Path, instances: int | None = 3) -> Model:
    return Model(path, ModelConfig("cuda", max_rows=8, instances=instances), RequestLimits())


def feed(count: int = 3) -> dict[str, Any]:
    return {"x": np.random.default_rng(0).standard_normal((count, 64, 64)).astype(np.float32)}


def shared(model: Model) -> dict[str, Any]:
    weights = model.engine._weights
    assert weights is not None
    return weights._values[0]


@pytest.mark.parametrize("external", [False, True])
def test_all_instances_read_the_same_memory(added: Path, tmp_path: Path, cuda: ServingGpu, external: bool) -> None:
    path = added
    if external:
        path = tmp_path / "added.onnx"
        onnx.save(onnx.load(added), path, save_as_external_data=True, location="added.data", size_threshold=0)
    model = load(path)
    assert set(shared(model)) == {"w"} and CudaSession.surveys == 1 and len(CudaSession.made) == 3
    instances = [model.engine.instance(index, 8) for index in range(3)]
    for instance in instances:
        assert np.array_equal(instance((feed(),))[0], feed()["x"] + W["w"])
    shared(model)["w"].array[...] = 5
    cuda.wait()
    for instance in instances:
        assert np.array_equal(instance((feed(),))[0], feed()["x"] + np.float32(5))


# ONNX Runtime transposes the weight, and keeps its name
TURNED = [("Transpose", ["x"], ["t"], SWAP), ("Add", ["t", "w"], ["a"], {}), ("Transpose", ["a"], ["y"], SWAP)]
FOLDED = [("Transpose", ["w"], ["t"], {"perm": [1, 0]}), ("Add", ["x", "t"], ["y"], {})]


@pytest.mark.parametrize(("nodes", "shape"), [(TURNED, (64, 64)), (TURNED, (1, 64, 64)), (FOLDED, (64, 64))])
def test_a_weight_that_the_optimizer_changes_is_not_shared(build: Any, nodes: Any, shape: tuple[int, ...]) -> None:
    path = build("changed", nodes, X, Y, {"w": W["w"].reshape(shape)})
    model = load(path)
    assert shared(model) == {}
    expected = Engine(read(path), "cpu", 1, 1).run(feed())[0]
    for index in range(3):
        assert np.array_equal(model.engine.instance(index, 8)((feed(),))[0], expected)


def test_what_is_not_shared(build: Any, added: Path) -> None:
    assert load(added, None).engine._weights is None and CudaSession.surveys == 0  # one session
    small = {"w": W["w"][:1]}
    assert shared(load(build("small", [("Add", ["x", "w"], ["y"], {})], X, Y, small))) == {}
    nodes = [("Cast", ["w"], ["f"], {"to": TensorProto.FLOAT}), ("Add", ["x", "f"], ["y"], {})]
    half = onnx.load(build("half", nodes, X, Y, W))
    bits = (W["w"].view(np.uint32) >> 16).astype(np.uint16)
    half.graph.initializer[0].CopyFrom(
        onnx.helper.make_tensor("w", TensorProto.BFLOAT16, (64, 64), bits.tobytes(), True)
    )
    path = added.parent / "half.onnx"
    onnx.save(half, path)
    assert shared(load(path)) == {}  # CuPy has no bfloat16
    given = onnx.load(added)
    given.graph.input.append(onnx.helper.make_tensor_value_info("w", TensorProto.FLOAT, (64, 64)))
    onnx.save(given, path)
    engine = Engine(read(path), "cuda", 2, 1)
    assert engine._weights is not None and not engine._weights.names  # a request may replace it


def test_a_graph_that_cannot_be_written(
    added: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shared_weights, "OPTIMIZED", "missing/optimized.onnx")
    with caplog.at_level(logging.WARNING, "ox.serve"):
        model = load(added)
    assert "do not share weights" in caplog.text and model.engine._weights is None
    assert np.array_equal(model.engine.instance(2, 8)((feed(),))[0], feed()["x"] + W["w"])


def test_no_folder_for_the_graph(
    added: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(added / "missing"))
    with caplog.at_level(logging.WARNING, "ox.serve"):
        engine = Engine(read(added), "cuda", 2, 1)
    assert "do not share weights: [Errno" in caplog.text and engine.shares_on == ()
    assert np.array_equal(engine.run(feed())[0], feed()["x"] + W["w"])


def test_no_graph_is_captured_while_the_first_session_ends(added: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users: list[int] = []
    gc.collect()  # sessions of other tests
    monkeypatch.setattr(CudaSession, "__del__", lambda _: users.append(GATE._users), raising=False)
    model = load(added)
    assert users == [1] and model.engine.shares_on == (0,)


@pytest.mark.parametrize("instances", [1, 2])
def test_their_memory_is_free_when_the_model_is_closed(added: Path, instances: int) -> None:
    """And that of buffers."""

    async def main() -> None:
        model = load(added, instances=instances)
        model.start(asyncio.get_running_loop())
        loaded = memory()
        # a block of the pool that others use a part of may have room for it
        assert loaded.held >= before.held and loaded.used - before.used >= (W["w"].nbytes if instances > 1 else 0)
        CudaSession.made.clear()
        await model.close()

    gc.collect()  # models of other tests
    GATE.end_pending()
    empty_cache()
    before = memory()
    asyncio.run(main())
    after = memory()
    assert (after.used, after.held) == (before.used, before.held)


@pytest.mark.parametrize("fails", [True, False], ids=["a session fails", "one is left on the CPU"])
def test_sessions_of_the_cpu_have_their_own(added: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Those on the GPU were to read the weights there, which the CPU cannot, and which would stay."""
    make: Any = session._session
    gc.collect()  # models of other tests
    GATE.end_pending()
    empty_cache()
    before, copies = memory().used, list[int]()
    copy = shared_weights.SharedWeights._copied
    monkeypatch.setattr(
        shared_weights.SharedWeights, "_copied", lambda *args: (copy(*args), copies.append(memory().used))[0]
    )
    monkeypatch.setattr(CudaSession, "get_providers", lambda _: [providers.CPU])
    monkeypatch.setattr(CudaSession, "made", deque(maxlen=0))  # would keep them

    def fail(*arguments: Any, **more: Any) -> Any:
        made = make(*arguments, **more)
        if fails and arguments[2] != [providers.CPU] and copies:
            raise session.CudaFailure("CUDA failure 35")
        return made

    monkeypatch.setattr(session, "_session", fail)
    engine = Engine(read(added), "auto", 2, 1)
    assert copies and min(copies) > before == memory().used
    assert engine.device == "cpu" and engine._weights is None and engine._sessions[0].ox_weights is None
    assert np.array_equal(engine.run(feed())[0], feed()["x"] + W["w"])


def test_the_failure_of_cuda_is_the_cause(added: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise session.CudaFailure("CUDA failure 35")

    monkeypatch.setattr(session, "_session", fail)
    with pytest.raises(DeviceError, match="CUDA failure 35") as caught:
        Engine(read(added), "cuda", 2, 1)
    assert isinstance(caught.value.__cause__, session.CudaFailure)


def test_no_memory_for_them(added: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    def fail(*_: Any) -> Any:
        raise cupy.cuda.memory.OutOfMemoryError(16384, 0)

    monkeypatch.setattr(cupy, "empty", fail)
    with pytest.raises(LoadError, match="the GPU has no memory for"):
        load(added)


def test_they_go_with_the_model(added: Path) -> None:
    model = load(added)
    value = weakref.ref(shared(model)["w"].array)
    CudaSession.made.clear()
    del model
    gc.collect()
    GATE.end_pending()  # those that the collector has ended
    assert value() is None
