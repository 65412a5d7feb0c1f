"""Servers without a GPU, also where there is one, except in tests for GPUs."""

from __future__ import annotations

import pytest

from ox import errors
from ox.serve import service
from ox.serve.protocol.v2 import cuda_region


@pytest.fixture(autouse=True)
def without_a_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise errors.DeviceError("CuPy finds no CUDA device", got="0 devices")

    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(cuda_region, "cupy", missing)
        monkeypatch.setattr(service, "extensions", lambda: service.EXTENSIONS)
