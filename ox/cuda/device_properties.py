"""What a device is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of a device under PyTorch's names; memory in bytes. `torch.cuda.get_device_properties`."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int


def of(found: Mapping[str, Any]) -> DeviceProperties:
    """From the properties under CUDA's names (CUDA Runtime API, `cudaDeviceProp`)."""
    name = found["name"]
    return DeviceProperties(
        name.decode() if isinstance(name, bytes) else str(name),
        *(int(found[key]) for key in ("major", "minor", "totalGlobalMem", "multiProcessorCount", "warpSize")),
    )
