"""Models on TensorRT: that provider or an error, and what its sessions are made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from cuda_session import CUDA, TENSORRT, CudaSession
from manual_clock import ManualClock
from rows import rows
from serving_gpu import ServingGpu

from ox.devices.machine import Driver
from ox.errors import DeviceError, LoadError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.batching.admission import Budget
from ox.serve.gpu_budget import GpuBudget
from ox.serve.repository.model import Model
from ox.serve.response_memory import ResponseMemory
from ox.serve.runtime import providers
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read

CPU = providers.CPU


@rows(
    ("there", "lacks", "words"),
    [
        ([CPU], {}, "is built for the CPU"),
        ([CUDA, CPU], {}, "is built without it"),
        ([TENSORRT, CUDA, CPU], {TENSORRT: "libnvinfer.so.10 is not installed"}, "(libnvinfer.so.10 is not installed)"),
        ([TENSORRT, CUDA, CPU], {CUDA: "libcudnn.so.9 is not installed"}, "(libcudnn.so.9 is not installed)"),
    ],
)
def test_it_is_never_another_provider(there: list[str], lacks: dict[str, str], words: str, mlp: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime, "get_available_providers", lambda: there)
        patch.setattr(providers, "preload", lambda runtime: None)
        patch.setattr(providers, "nvidia_driver", lambda: Driver((13, 0), ("H200",)))
        patch.setattr(providers, "missing_library", lambda _, provider: lacks.get(provider))
        with pytest.raises(DeviceError, match="the TensorRT execution provider did not load") as caught:
            Model(mlp, ModelConfig("tensorrt"), RequestLimits())
        assert words in str(caught.value.got) and "or --device cuda" in str(caught.value.hint)
        if not lacks and TENSORRT in there:
            assert providers.choose(onnxruntime, "tensorrt") == there


def test_what_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [TENSORRT, CUDA, CPU]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: there)
    monkeypatch.setattr(providers, "preload", lambda runtime: None)
    monkeypatch.setattr(providers, "nvidia_driver", lambda: Driver((13, 0), ("H200",)))
    monkeypatch.setattr(providers, "missing_library", lambda *_: None)
    assert providers.choose(onnxruntime, "tensorrt") == there
    assert providers.choose(onnxruntime, "cuda") == providers.choose(onnxruntime, "auto") == [CUDA, CPU]
    with pytest.raises(DeviceError, match="there is no cuda:3"):
        providers.choose(onnxruntime, "tensorrt:3")


@pytest.mark.gpu
def test_its_sessions(mlp: Path, cuda: ServingGpu) -> None:
    cuda.require(TENSORRT)
    model = Model(mlp, ModelConfig("tensorrt", max_rows=8, instances=2, cuda={"use_tf32": False}), RequestLimits())
    assert model.engine.place == "tensorrt" and model.engine.device == "cuda"
    assert model.describe().split(" · ")[1] == f"tensorrt ({TENSORRT})"
    assert CudaSession.surveys == 0  # TensorRT has its own copy of the weights
    for made in CudaSession.made:
        stream = made.options["user_compute_stream"]
        assert made.tensorrt == {"device_id": "0", "user_compute_stream": stream}
        assert made.options["use_tf32"] == "0"
    x = {"x": np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)}
    expected = Engine(read(mlp), "cpu", 1, 1).run(x)[0]
    got = model.engine.instance(1, 8)((x,))[0]
    assert abs(got - expected).max() < 1e-2 * abs(expected).max()  # TensorRT rounds to TF32


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
def test_a_session_that_onnx_runtime_made_without_it(mlp: Path) -> None:
    CudaSession.missing = (TENSORRT,)
    with pytest.raises(DeviceError, match="the TensorRT execution provider did not load") as caught:
        Model(mlp, ModelConfig("tensorrt"), RequestLimits())
    assert CUDA in str(caught.value.got)


@pytest.mark.gpu
def test_its_memory_has_no_limit(mlp: Path, cuda: ServingGpu) -> None:
    cuda.require(TENSORRT)
    clock: Any = ManualClock()
    budget = Budget(1 << 20, 1 << 20, ResponseMemory(1 << 20, clock), GpuBudget(1 << 33))
    options = ModelConfig("tensorrt", cuda={"gpu_mem_limit": "1GiB"})
    with pytest.raises(LoadError, match="may take any amount of a GPU's memory") as caught:
        Model(mlp, options, RequestLimits(), budget=budget)
    assert caught.value.got == "TensorRT" and "no gpu_mem_limit" not in caught.value.one_line()
