"""Models of a server on one GPU: the memory that they may take together."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_session import CPU, CudaSession
from lent_stream import lent_stream
from onnx import TensorProto

from ox.clock import SYSTEM
from ox.devices import cuda
from ox.errors import DeviceError, LoadError
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.batching.admission import Budget
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.gpu_budget import GpuBudget
from ox.serve.repository import model
from ox.serve.repository.model import Model
from ox.serve.response_memory import ResponseMemory
from ox.serve.runtime import device_memory, providers
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.device_memory import DeviceMemory, free_bytes
from ox.serve.runtime.lost_device import lost_device
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read
from ox.serve.tuning import measure

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]

GIB = 1 << 30


def load(path: Path, budget: Budget, name: str, instances: int | None = None, **cuda: Any) -> Model:
    options = ModelConfig("cuda", max_rows=2, instances=instances, cuda=cuda)
    return Model(path, options, RequestLimits(), name=name, budget=budget)


def test_what_sessions_claim(mlp: Path) -> None:
    budget = Budget(1 << 20, 1 << 20, ResponseMemory(1 << 20, SYSTEM), GpuBudget(3 * GIB))
    one = load(mlp, budget, "one", gpu_mem_limit="1GiB")
    assert [needs for _, needs in budget.gpu._claims] == [{0: GIB}, {0: 2 * 4 * (64 + 10)}]  # and its buffers
    with pytest.raises(LoadError, match="cuda:0 has no room for two 1"):  # the weights that they share are too much
        load(mlp, budget, "two", 2, gpu_mem_limit="1GiB")
    del one
    load(mlp, budget, "two", 2, gpu_mem_limit="1GiB")
    with pytest.raises(LoadError, match="may take any amount of a GPU's memory"):
        load(mlp, budget, "three", use_tf32=False)
    assert read(mlp).weights == 4 * (64 * 64 + 64 * 10)


def test_weights_beyond_the_limit_of_a_session(build: Any) -> None:
    """ONNX Runtime would allocate them, and hold the session to no limit."""
    f, dims = TensorProto.FLOAT, ["batch", 512, 1024]
    weights = {"w": np.ones((512, 1024), np.float32)}  # 2 MiB
    path = build("large", [("Add", ["x", "w"], ["y"], {})], {"x": (f, dims)}, {"y": (f, dims)}, weights)
    for limit in ("1MiB", "2MiB"):
        with pytest.raises(LoadError, match=r"the weights of .* do not fit into gpu_mem_limit") as caught:
            Model(path, ModelConfig("cuda", max_rows=2, cuda={"gpu_mem_limit": limit}), RequestLimits())
        assert f"expected less than {limit[0]} MiB; got 2.0 MiB" in caught.value.one_line()
    shared = {"instances": 2, "cuda": {"gpu_mem_limit": "32MiB"}}
    assert Model(path, ModelConfig("cuda", max_rows=2, **shared), RequestLimits()).engine._weights is not None
    engine = Engine(read(path), "cuda", 2, 1, cuda=CudaOptions(1 << 20))  # which the sessions do not hold themselves
    assert engine._weights is not None and engine._weights.nbytes == 2 << 20


def test_a_closed_model_frees_its_memory_and_then_its_claims(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model that looks at the GPU meanwhile would take it for memory of other processes."""
    budget = Budget(1 << 20, 1 << 20, ResponseMemory(1 << 20, SYSTEM), GpuBudget(3 * GIB))
    ended: list[Any] = []

    async def main() -> None:
        one = load(mlp, budget, "one", gpu_mem_limit="1GiB")
        one.start(asyncio.get_running_loop())
        session = weakref.ref(CudaSession.made.pop()._sess)
        monkeypatch.setattr(model, "free_pools", lambda gpus: ended.append((session(), gpus, [*budget.gpu._claims])))
        await one.close()

    asyncio.run(main())
    ((session, gpus, claims),) = ended
    assert session is None and gpus == (0,) and len(claims) == 2 and not budget.gpu._claims


def test_buffers_that_give_other_results_claim_nothing(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(1 << 20, 1 << 20, ResponseMemory(1 << 20, SYSTEM), GpuBudget(3 * GIB))
    monkeypatch.setattr(measure, "_gives_the_same", lambda *_: False)
    model = load(mlp, budget, "one", gpu_mem_limit="1GiB")
    assert model.fit.bound == 0 and [needs for _, needs in budget.gpu._claims] == [{0: GIB}]
    assert CudaSession.made[0].shrunk == ["gpu:0"]


def test_what_a_pool_does_not_use_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models that are gone; other processes do not hold it."""
    import cupy

    pool, users = cupy.get_default_memory_pool(), list[int]()
    real = device_memory.cuda.memory
    monkeypatch.setattr(device_memory.cuda, "memory", lambda device: users.append(GATE._users) or real(device))
    pool.free_all_blocks()
    free = free_bytes(0)
    assert free is not None
    block = cupy.empty(GIB, cupy.uint8)
    assert GpuBudget(1 << 60).free(0) <= free - GIB
    del block
    budget = GpuBudget(1 << 60)
    budget.claim("a 1", {0: free - GIB // 2})
    assert pool.total_bytes() < GIB and users == [1] * len(users)


@pytest.mark.parametrize(("instances", "rows"), [(1, 0), (1, 1), (1, 2), (2, 2)])
def test_buffers_are_within_the_limit(mlp: Path, instances: int, rows: int, caplog: pytest.LogCaptureFixture) -> None:
    weights = read(mlp).weights if instances > 1 else 0
    limit = instances * (GIB + rows * 4 * (64 + 10)) + weights
    budget = Budget(1 << 20, 1 << 20, ResponseMemory(1 << 20, SYSTEM), GpuBudget(limit))
    model = load(mlp, budget, "one", instances, gpu_mem_limit="1GiB")
    assert model.fit.bound == (2 if rows == 2 else 0) and model.proof.max_rows == 2
    assert ("served without buffers of its own: cuda:0 has no room for one 1" in caplog.text) is (rows < 2)
    assert "buffers of each instance, for batches of 2" in caplog.text or rows == 2
    assert budget.gpu.free(0) == (0 if rows == 2 else instances * rows * 4 * (64 + 10))
    del model
    if rows < 2:
        with pytest.raises(LoadError, match="cuda:0 has no room for one 1"):
            load(mlp, budget, "one", instances, gpu_mem_limit="1GiB", enable_cuda_graph=True)
    gc.collect()
    assert budget.gpu.free(0) == limit


def test_a_model_that_runs_on_the_cpu_claims_nothing(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = GpuBudget(3 * GIB)
    monkeypatch.setattr(CudaSession, "get_providers", lambda _: [CPU])  # ONNX Runtime left CUDA out
    with pytest.raises(DeviceError, match="has options of cuda, and runs on the CPU") as caught:
        Engine(read(mlp), "auto", 1, 1, cuda=CudaOptions(GIB), claim=partial(budget.claim, "one 1"))
    assert caught.tb is not None and not budget._claims  # while the engine is in a frame of the error


def test_a_gpu_that_falls_off(tmp_path: Path, mlp: Path, connect: Any, infer: Any) -> None:
    for name in ("on_gpu", "on_cpu"):
        (tmp_path / f"{name}.onnx").write_bytes(mlp.read_bytes())
    (tmp_path / "ox.toml").write_text('[models.on_gpu]\ndevice = "cuda"\n')
    x = np.ones((2, 64), np.float32)
    entry = {"name": "x", "shape": [2, 64], "datatype": "FP32", "data": x.ravel().tolist()}
    with Server([tmp_path], options=ModelConfig("cpu", max_rows=2)) as server, connect(server) as client:
        expected = infer(client, "on_gpu", x=x)["y"]
        CudaSession.broken = "CUDA failure 719: unspecified launch failure ; GPU=0 ; hostname=secret"
        status, _, text = client.ask("POST", "/v2/models/on_gpu/infer", json.dumps({"inputs": [entry]}).encode())
        assert status == 503 and b"cuda:0 has failed, and takes no more work" in text and b"secret" not in text
        assert np.allclose(infer(client, "on_cpu", x=x)["y"], expected, rtol=1e-4, atol=1e-4)


def test_two_versions_of_cudnn_are_logged(
    mlp: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    two = "this process has loaded cuDNN 9.28.1 (/a/libcudnn.so.9) and 9.10.2 (/b/libcudnn.so.9)"
    monkeypatch.setattr(providers.cudnn_libraries, "conflict", lambda: two)
    Model(mlp, ModelConfig("cuda", max_rows=2), RequestLimits())
    assert caplog.text.count(f"{two}, which do not work together: one nvidia-cudnn package") == 1


@pytest.mark.stand_in("a GPU is not broken on purpose")
@pytest.mark.parametrize("words", ["CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED", "CUDNN failure 4: x"])
def test_a_library_that_fails_because_its_gpu_is_lost(words: str, tmp_path: Path, mlp: Path, connect: Any) -> None:
    """The GPU is asked: cuBLAS fails on one that works, too."""
    import host_cuda

    (tmp_path / "a.onnx").write_bytes(mlp.read_bytes())
    entry = {"name": "x", "shape": [2, 64], "datatype": "FP32", "data": [1.0] * 128}
    with Server([tmp_path], options=ModelConfig("cuda", max_rows=2)) as server, connect(server) as client:
        CudaSession.broken = f"{words} ; GPU=0 ; hostname=secret"
        for number, expected in (0, 500), (700, 503), (226, 503), (0, 500):
            with host_cuda.lost(number):
                status, _, text = client.ask("POST", "/v2/models/a/infer", json.dumps({"inputs": [entry]}).encode())
            assert status == expected and b"secret" not in text, text
            assert (b"cuda:0 has failed, and takes no more work" in text) == (expected == 503)
            assert (b"cudaErrorIllegalAddress: " in text) == (number == 700), text


@pytest.mark.stand_in("a GPU is not broken on purpose")
@pytest.mark.parametrize("number", [2, 46, 900])  # no memory for a context, in use, during a capture
def test_errors_after_which_a_gpu_works(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import host_cuda

    users = []
    query = cuda.memory
    monkeypatch.setattr(cuda, "memory", lambda device: (users.append(GATE._users), query(device))[1])
    error = RuntimeError("CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED")
    with host_cuda.lost(number):
        assert lost_device(error, 0) is None
    with host_cuda.lost(700):
        refusal = DeviceMemory(None).refusal(error)
    assert refusal is not None and refusal.status == 503
    assert users == [0, 1]  # what asks of a run's error waits for captures


@pytest.mark.stand_in("using a stream that was destroyed is undefined on a GPU")
def test_a_stream_that_was_destroyed(tmp_path: Path, mlp: Path, connect: Any, infer: Any) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.onnx").write_bytes(mlp.read_bytes())
    x = np.ones((2, 64), np.float32)
    entry = {"name": "x", "shape": [2, 64], "datatype": "FP32", "data": x.ravel().tolist()}
    with Server([tmp_path], options=ModelConfig("cuda", max_rows=2)) as server, connect(server) as client:
        expected = infer(client, "b", x=x)["y"]
        infer(client, "a", x=x)  # makes the buffers
        instance = next(model for model in server.models if model.name == "a").batcher._instances[0]
        stream, destroy = lent_stream()  # which does not tell its device
        numbered = SimpleNamespace(device_id=0, ptr=stream.ptr, synchronize=stream.synchronize)
        instance._stream = numbered  # type: ignore[attr-defined]
        destroy()
        for _ in range(2):
            status, _, text = client.ask("POST", "/v2/models/a/infer", json.dumps({"inputs": [entry]}).encode())
            assert status == 503, text
            assert b"the stream of cuda:0 that this model runs on has been destroyed" in text
        assert np.allclose(infer(client, "b", x=x)["y"], expected, rtol=1e-4, atol=1e-4)


def test_a_run_on_a_stream_that_was_destroyed(tmp_path: Path, mlp: Path, connect: Any) -> None:
    """In the words of ONNX Runtime, where CUDA reports it."""
    (tmp_path / "a.onnx").write_bytes(mlp.read_bytes())
    entry = {"name": "x", "shape": [2, 64], "datatype": "FP32", "data": [1.0] * 128}
    with Server([tmp_path], options=ModelConfig("cuda", max_rows=2)) as server, connect(server) as client:
        CudaSession.broken = "CUDA failure 400: invalid resource handle ; GPU=0 ; hostname=secret"
        status, _, text = client.ask("POST", "/v2/models/a/infer", json.dumps({"inputs": [entry]}).encode())
        assert status == 503 and b"the stream of cuda:0 that this model runs on has been destroyed" in text
        assert b"secret" not in text


def test_a_server_goes_on_with_the_other_models(tmp_path: Path, mlp: Path, connect: Any, infer: Any) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.onnx").write_bytes(mlp.read_bytes())
    options = ModelConfig("cuda", max_rows=2, cuda={"gpu_mem_limit": "1GiB"})
    limits = RequestLimits(gpu_memory=GIB)
    with Server([tmp_path], options=options, limits=limits, manage=True) as server, connect(server) as client:
        states = {each["name"]: each for each in json.loads(client.ask("POST", "/v2/repository/index", b"{}")[2])}
        (ready,) = (name for name in states if states[name]["state"] == "READY")
        (refused,) = set(states) - {ready}
        assert "cuda:0 has no room" in states[refused]["reason"] and f"{ready} 1 1,024 MiB" in states[refused]["reason"]
        assert infer(client, ready, x=np.zeros((1, 64), np.float32))["y"].shape == (1, 10)
        assert client.ask("POST", f"/v2/repository/models/{ready}/unload", b"{}")[0] == 200
        assert client.ask("POST", f"/v2/repository/models/{refused}/load", b"{}")[0] == 200
        assert infer(client, refused, x=np.zeros((1, 64), np.float32))["y"].shape == (1, 10)
