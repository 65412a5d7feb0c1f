"""cuDNN, or what stands for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ox.devices.gpu import cudnn, cudnn_settings
from ox.devices.gpu.cudnn_settings import Settings
from ox.devices.gpu.thread_handles import ThreadHandles


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What host_cudnn was asked for, in place of cuDNN."""
    if "host_cuda" not in sys.modules:
        pytest.skip("host_cudnn computes in memory of the host")
    import host_cudnn

    monkeypatch.setitem(sys.modules, "cudnn", host_cudnn)
    monkeypatch.setattr(host_cudnn, "log", host_cudnn.Log())
    monkeypatch.setattr(cudnn, "_handles", ThreadHandles(cudnn._new_handle))
    monkeypatch.setattr(cudnn, "_warned", [])
    monkeypatch.setattr(cudnn_settings, "_current", Settings())
    cudnn.library.cache_clear()
    yield host_cudnn.log
    cudnn.library.cache_clear()


@pytest.fixture
def cudnn_or_stand_in(request: pytest.FixtureRequest) -> None:
    """cuDNN where there is a GPU with it; else host_cudnn."""
    if "host_cuda" in sys.modules:
        request.getfixturevalue("log")
    elif cudnn.library() is None:
        pytest.skip("cuDNN's frontend is not installed (ox-onnx[cudnn])")
