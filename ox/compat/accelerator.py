"""`torch.accelerator`: the GPUs of this machine, without the name of their kind."""

from __future__ import annotations

from typing import Any

from ox import cuda
from ox.core.device import device as Device
from ox.core.lazy import missing_attribute_error
from ox.cuda import memory, ordinal

__all__ = [
    "current_accelerator",
    "current_device_index",
    "device_count",
    "device_index",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "memory_allocated",
    "memory_reserved",
    "set_device_index",
    "synchronize",
]

is_available = cuda.is_available
device_count = cuda.device_count
current_device_index = current_device_idx = ordinal.current_device
set_device_index = set_device_idx = cuda.set_device
device_index = cuda.device
synchronize = cuda.synchronize
empty_cache = cuda.empty_cache
memory_allocated = memory.memory_allocated
memory_reserved = memory.memory_reserved
max_memory_allocated = memory.max_memory_allocated


def current_accelerator(check_available: bool = False) -> Device | None:
    """``cuda`` where there is a GPU, or None. `torch.accelerator.current_accelerator`."""
    return Device("cuda") if is_available() else None


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
