"""GPUs, as the driver's library tells of them; here one that is made up."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from ox.serve.telemetry import gpu


class Driver:
    """Two GPUs, of which the second is a part and does not tell its load."""

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:
        device._obj.value = index + 1
        return 0

    def nvmlDeviceGetUUID(self, device: Any, name: Any, size: int) -> int:
        name.value = b"GPU-%d" % device.value
        return 0

    def nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used = 100, 10 * device.value
        return 0

    def nvmlDeviceGetUtilizationRates(self, device: Any, load: Any) -> int:
        load._obj.gpu = 25
        return 3 if device.value == 2 else 0


def test_what_the_driver_says() -> None:
    assert gpu.figures(Driver()) == {
        "GPU-1": {"used": 10.0, "total": 100.0, "load": 0.25},
        "GPU-2": {"used": 20.0, "total": 100.0},
    }


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    gpu.library.cache_clear()
    assert gpu.figures() == {}
    gpu.library.cache_clear()


@pytest.mark.gpu
def test_a_real_gpu() -> None:
    found = gpu.figures()
    assert found and all(0 < entry["used"] <= entry["total"] for entry in found.values())
