"""`torch.xpu`: Intel's GPUs. ox runs on cpu and cuda only, and reports that there are none."""

from __future__ import annotations

from typing import Any

from ox.core.lazy import missing_attribute_error

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all", "synchronize"]


def is_available() -> bool:
    """False. `torch.xpu.is_available`."""
    return False


def device_count() -> int:
    """0. `torch.xpu.device_count`."""
    return 0


def empty_cache() -> None:
    """Nothing. `torch.xpu.empty_cache`."""


def manual_seed(seed: int) -> None:
    """Nothing: `ox.manual_seed` seeds the generator of every device. `torch.xpu.manual_seed`."""


manual_seed_all = manual_seed


def synchronize(device: Any = None) -> None:
    """Nothing: no call runs on such a device. `torch.xpu.synchronize`."""


def current_allocated_memory() -> int:
    """0. `torch.mps.current_allocated_memory`."""
    return 0


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
