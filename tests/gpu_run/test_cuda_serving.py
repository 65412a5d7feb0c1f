"""The server of a run on a GPU, with ONNX Runtime's CPU provider in CUDA's place, on host_cuda."""

from __future__ import annotations

import sys
from typing import Any

import cuda_session
import numpy as np
import pytest
from gpu_run import cuda_serving

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    if "host_cuda" not in sys.modules:
        pytest.skip("on a GPU it is a step of its own")
    cuda_session.install(monkeypatch.setattr)
    monkeypatch.setenv("GPU_QUICK", "1")


@pytest.mark.parametrize("name", cuda_serving.PARTS)
def test_a_part(name: str) -> None:
    found = cuda_serving.PARTS[name]()
    assert found.get("largest difference", 0) < 1e-4


def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with cuda_serving.served() as client:
        run = client.plain["mlp"].run
        monkeypatch.setattr(client.plain["mlp"], "run", lambda feed: [np.nextafter(*run(feed), np.float32(0)) * 1.1])
        client.check("conv", 3, 0)
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            client.check("mlp", 3, 0)


def test_a_server_on_the_cpu_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def cpu(*_: Any) -> list[str]:
        return [cuda_session.CPU]

    monkeypatch.setattr(cuda_session.providers, "choose", cpu)
    with pytest.raises(Exception, match="has options of cuda, and runs on the CPU"), cuda_serving.served():
        pass
