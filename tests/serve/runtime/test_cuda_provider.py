"""Options that sessions on a GPU are made with, and the control of their runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest

from ox.devices.machine import Driver
from ox.errors import DeviceError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.repository.model import Model
from ox.serve.runtime import providers, session
from ox.serve.runtime.cuda_provider import NO_GRAPH, DeviceControl, provider_options

STREAM = {"user_compute_stream": "4096", "do_copy_in_default_stream": "1"}


@pytest.mark.parametrize(
    ("options", "stream", "texts"),
    [
        (CudaOptions(), None, {"device_id": "0", "use_tf32": "0", "enable_cuda_graph": "0"}),
        (CudaOptions(), 4096, {"device_id": "0", "use_tf32": "0", "enable_cuda_graph": "0", **STREAM}),
        (
            CudaOptions(1 << 30, "kSameAsRequested", "HEURISTIC", True, True, False, 2, True, True, 50, True),
            4096,
            {
                "device_id": "0",
                "gpu_mem_limit": "1073741824",
                "arena_extend_strategy": "kSameAsRequested",
                "cudnn_conv_algo_search": "HEURISTIC",
                "use_tf32": "1",
                "prefer_nhwc": "1",
                "cudnn_conv_use_max_workspace": "0",
                "sdpa_kernel": "2",
                "tunable_op_enable": "1",
                "tunable_op_tuning_enable": "1",
                "tunable_op_max_tuning_duration_ms": "50",
                "enable_cuda_graph": "1",
                **STREAM,
            },
        ),
    ],
)
def test_options_of_the_provider(options: CudaOptions, stream: int | None, texts: dict[str, str]) -> None:
    assert provider_options(options, stream) == texts
    assert provider_options(options, stream, 3) == texts | {"device_id": "3"}


def test_a_session_gets_them(mlp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    real = onnxruntime.InferenceSession

    def make(*args: Any, providers: list[Any], **more: Any) -> Any:
        made.append({"providers": providers, **more})
        return real(*args, providers=providers[-1:])

    monkeypatch.setattr(providers, "choose", lambda *_: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(session.cuda_devices, "available", lambda: False)
    monkeypatch.setattr(onnxruntime, "InferenceSession", make)
    with pytest.raises(DeviceError, match="has options of cuda, and runs on the CPU"):
        Model(mlp, ModelConfig("auto", cuda={"use_tf32": False}), RequestLimits())
    first = next(each for each in made if "enable_fallback" in each)  # not that of the CPU after it
    (provider, options), last = first["providers"]
    assert provider == "CUDAExecutionProvider" and last == "CPUExecutionProvider"
    assert options == {"device_id": "0", "use_tf32": "0", "enable_cuda_graph": "0"}
    assert first["enable_fallback"] == 0  # which would print, and go on with the CPU


def test_a_gpu_that_does_not_exist(mlp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [providers.CUDA, providers.CPU])
    monkeypatch.setattr(providers, "preload", lambda runtime: None)
    monkeypatch.setattr(providers, "nvidia_driver", lambda: Driver((13, 0), ("H100", "A100")))
    monkeypatch.setattr(providers, "missing_library", lambda *_: None)
    with pytest.raises(DeviceError, match="there is no cuda:7") as caught:
        Model(mlp, ModelConfig("cuda:7"), RequestLimits())
    assert caught.value.expected == "cuda:0 (H100), cuda:1 (A100)" and "MIG" not in str(caught.value.hint)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1f7c,MIG-2a5b")
    with pytest.raises(DeviceError, match=r"(?s)there is no cuda:7.*of the slices of MIG a process has one"):
        Model(mlp, ModelConfig("cuda:7"), RequestLimits())
    assert Model(mlp, ModelConfig("auto:7"), RequestLimits()).engine.place == "cpu"


def test_options_without_a_gpu_are_refused(mlp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "choose", lambda *_: ["CPUExecutionProvider"])
    with pytest.raises(DeviceError, match="has options of cuda, and runs on the CPU"):
        Model(mlp, ModelConfig("auto", cuda={"gpu_mem_limit": "1GiB"}), RequestLimits())
    assert Model(mlp, ModelConfig("auto"), RequestLimits()).engine.device == "cpu"


def test_a_control_ends_all_ways_to_run() -> None:
    def make(graph: int, waits: bool) -> SimpleNamespace:
        return SimpleNamespace(graph=graph, waits=waits, terminate=False)

    control = DeviceControl(make)
    plain, bound = control.options(), control.options(7, waits=False)
    assert (plain.graph, plain.waits, bound.graph, bound.waits) == (NO_GRAPH, True, 7, False)
    assert control.options(7, waits=False) is bound and not control.terminate
    control.terminate = True
    assert plain.terminate and bound.terminate and control.terminate
    assert control.options(8).terminate  # made later
