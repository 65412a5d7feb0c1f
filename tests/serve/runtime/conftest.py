"""What tests of limits on memory share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import onnxruntime as ort
import pytest
from cuda_session import CPU, CUDA, CudaSession, InferenceSession, host_value

from ox.devices import arena
from ox.devices.runtime import onnxruntime
from ox.serve.runtime.memory import default_limit


@pytest.fixture
def usual_arena() -> Iterator[None]:
    """For a test that makes an arena with a low limit: sessions that later tests make in this process get one with the
    usual limit. ONNX Runtime knows one arena for all, and keeps it when a test forgets it."""
    yield
    arena._arenas.clear()
    arena.shared_arena(onnxruntime(), default_limit())


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-ins, and what counts on them."""
    host_cuda = sys.modules.get("host_cuda")
    if host_cuda is None:
        pytest.skip("one GPU is not the memory of the host")
    providers = {"cpu": [CPU]}
    monkeypatch.setattr("ox.serve.runtime.providers.choose", lambda _, device: providers.get(device, [CUDA, CPU]))
    monkeypatch.setattr(ort.OrtValue, "from_dlpack", host_value)
    monkeypatch.setattr(
        ort,
        "InferenceSession",
        lambda *args, **more: (CudaSession if "enable_fallback" in more else InferenceSession)(*args, **more),
    )
    CudaSession.made, CudaSession.surveys, CudaSession.failures = [], 0, 0
    yield host_cuda
