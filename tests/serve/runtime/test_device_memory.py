"""A run or a session without memory on the GPU: the error says who holds what."""

from __future__ import annotations

from typing import Any

import pytest

from ox.devices.gpu.cupy_device import Memory
from ox.devices.gpu.sticky_errors import LOST
from ox.errors import DeviceError, LoadError
from ox.serve.repository.entry import Slot
from ox.serve.runtime import device_memory
from ox.serve.runtime.device_memory import DeviceMemory
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.session import _session
from ox.serve.runtime.source import read

MIB = 1 << 20
NODE = "Non-zero status code returned while running MatMul node. Name:'m' Status Message: "
ARENA = "Available memory of 1048576 is smaller than requested bytes of {}"


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of 1,000 MiB, of which 100 are free; CuPy's pool holds 300, 200 of them in arrays."""
    monkeypatch.setattr(device_memory.cuda, "available", lambda: True)
    cards = {"cuda:0": Memory(200 * MIB, 300 * MIB, 100 * MIB, 1000 * MIB, 1000 * MIB), "cuda:1": Memory(0, 0, 7, 8, 8)}

    def memory(device: str) -> Memory:
        if device not in cards:
            raise DeviceError(f"there is no {device}")
        return cards[device]

    monkeypatch.setattr(device_memory.cuda, "memory", memory)


HELD = (
    "of 1,000 MiB of cuda:0, 100 are free, CuPy's pool in this process holds 300 (200 in arrays), sessions of ONNX "
    "Runtime and other processes 600"
)


@pytest.mark.parametrize(
    ("text", "limit", "status", "got"),
    [
        (NODE + ARENA.format(64 * MIB), 32 * MIB, 413, "64 MiB more for MatMul"),
        (NODE + ARENA.format(16 * MIB), 32 * MIB, 503, "16 MiB more for MatMul"),
        (NODE + "Failed to allocate memory for requested buffer of size 99", None, 503, "more for MatMul"),
        ("CUDA failure 2: out of memory ; GPU=0", None, 503, "more"),
        ("CUDNN_STATUS_ALLOC_FAILED", 32 * MIB, 503, "more"),
    ],
)
def test_a_run(text: str, limit: int | None, status: int, got: str) -> None:
    refusal = DeviceMemory(limit).refusal(RuntimeError(text))
    assert refusal is not None and refusal.status == status and refusal.got == f"{got}; {HELD}"
    shown = "there is no gpu_mem_limit" if limit is None else "at most 32 MiB for a session (gpu_mem_limit)"
    assert shown in str(refusal.expected)


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (
            NODE + "CUDA failure 719: unspecified launch failure ; GPU=1 ; hostname=secret ; file=/x.cc ; line=7",
            "CUDA failure 719: unspecified launch failure",
        ),
        ("CUDA failure 999: unknown error ; GPU=192915439 ; expr=cudaSetDevice(info_.device_id); ",
         "CUDA failure 999: unknown error"),
    ],
)  # fmt: skip
def test_a_gpu_that_is_lost(text: str, got: str) -> None:
    refusal = DeviceMemory(None, 1).refusal(RuntimeError(text))
    assert refusal is not None and refusal.status == 503 and refusal.got == got
    assert refusal.what == "cuda:1 has failed, and takes no more work of this server"


@pytest.mark.parametrize("number", LOST)
def test_each_error_of_a_lost_gpu(number: int) -> None:
    for text in (f"CUDA failure {number}: in CUDA's words", *(f"{name}: in CUDA's words" for name in LOST[number])):
        refusal = DeviceMemory(None, 1).refusal(RuntimeError(f"{text} ; GPU=1 ; hostname=secret"))
        assert refusal is not None and refusal.status == 503 and refusal.got == text
    assert DeviceMemory(None, 1).refusal(RuntimeError(f"CUDA failure {number}0: another error")) is None


@pytest.mark.parametrize(
    "text",
    [
        NODE + "CUDA failure 400: invalid resource handle ; GPU=1 ; hostname=secret ; expr=cudaStreamSynchronize(s)",
        "cudaErrorInvalidResourceHandle: invalid resource handle",
    ],
)
def test_a_stream_that_was_destroyed(text: str) -> None:
    refusal = DeviceMemory(None, 1).refusal(RuntimeError(text))
    assert refusal is not None and refusal.status == 503 and "secret" not in str(refusal)
    assert refusal.what == "the stream of cuda:1 that this model runs on has been destroyed"
    assert "load it again; other models go on" in str(refusal.hint)


def test_other_processes_are_named_to_the_operator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    others = "4711 (python3) 500 MiB"
    monkeypatch.setattr(device_memory.nvml, "others", lambda number: f"{others} of {number}")
    memory = DeviceMemory(None)
    refusal = memory.refusal(RuntimeError("CUDA failure 2: out of memory"))
    assert refusal is not None and refusal.got == f"more; {HELD}"  # clients are others' tenants
    assert "4711" not in str(refusal) and "another process" not in str(refusal)
    assert f"no memory on cuda:0, beside other processes: {others} of 0" in caplog.text
    assert memory.holders() == HELD and memory.others() == {"other processes": f"{others} of 0"}
    assert memory.hint().startswith("end another process on the GPU")


def test_other_failures_are_none() -> None:
    assert DeviceMemory(None).refusal(RuntimeError("CUDA failure 1: invalid argument ; GPU=0")) is None
    assert DeviceMemory(None).refusal(RuntimeError("CUDNN_STATUS_NOT_SUPPORTED")) is None
    assert DeviceMemory(None).refusal(RuntimeError("CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED")) is None
    assert DeviceMemory(None, 7).refusal(RuntimeError("CUDNN_STATUS_INTERNAL_ERROR")) is None  # CuPy has no such number
    busy = "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable"  # by another process
    assert DeviceMemory(None).refusal(RuntimeError(busy)) is None


def test_on_a_second_gpu() -> None:
    refusal = DeviceMemory(None, 1).refusal(RuntimeError("CUDA failure 2: out of memory"))
    assert refusal is not None and "of 0 MiB of cuda:1, 0 are free" in str(refusal.got)


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory.cuda, "available", lambda: False)
    refusal = DeviceMemory(None).refusal(RuntimeError("CUDA failure 2: out of memory"))
    assert refusal is not None and refusal.got == "more; who holds it is not known without CuPy"


def test_a_session_that_cannot_be_made(mlp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    class Runtime:
        SessionOptions = onnxruntime.SessionOptions

        @staticmethod
        def InferenceSession(*_: Any, **__: Any) -> None:
            raise RuntimeError("CUDA failure 2: out of memory ; GPU=0 ; hostname=secret")

    memory = DeviceMemory(None)
    with pytest.raises(LoadError, match="the GPU has no memory for") as caught:
        _session(Runtime, read(mlp), ["CUDAExecutionProvider"], 1, LoadControl(), memory)  # type: ignore[arg-type]
    assert "out of memory" in str(caught.value.got) and str(caught.value.got).endswith(HELD)
    assert "another GPU" in str(caught.value.hint) and not caught.value.extra
    monkeypatch.setattr(device_memory.nvml, "others", lambda number: "4711 (python3) 500 MiB")
    with pytest.raises(LoadError, match="4711") as caught:
        _session(Runtime, read(mlp), ["CUDAExecutionProvider"], 1, LoadControl(), memory)  # type: ignore[arg-type]
    slot = Slot(1)
    slot.fails((), caught.value)  # type: ignore[arg-type]
    assert "4711" in caught.value.one_line() and "4711" not in slot.why  # which the index shows to clients
    assert HELD in slot.why
