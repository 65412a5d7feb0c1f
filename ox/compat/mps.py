"""`torch.mps`: Apple's GPUs. ox runs on cpu and cuda only, and reports that there are none."""

from __future__ import annotations

from typing import Any

from ox.compat.xpu import current_allocated_memory, device_count, empty_cache, is_available, manual_seed, synchronize
from ox.core.lazy import missing_attribute_error

__all__ = [
    "current_allocated_memory",
    "device_count",
    "empty_cache",
    "is_available",
    "manual_seed",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
