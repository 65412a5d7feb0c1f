"""Memory and load of NVIDIA GPUs, read from the driver's library (NVML)."""

from __future__ import annotations

import ctypes
from typing import Any

from ox.devices.gpu.nvml import Memory, call, devices, library


class _Load(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def figures(nvml: Any = None) -> dict[str, dict[str, float]]:
    """By the id of each GPU or MIG slice: bytes `used` and `total`, `load` from 0 to 1. Empty without a driver."""
    nvml = nvml or library()
    found: dict[str, dict[str, float]] = {}
    for device in [] if nvml is None else devices(nvml):
        name, memory, load = ctypes.create_string_buffer(96), Memory(), _Load()
        if call(nvml, "nvmlDeviceGetUUID", device, name, len(name)):
            continue
        if call(nvml, "nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory)):
            continue
        entry = {"used": float(memory.used), "total": float(memory.total)}
        if not call(nvml, "nvmlDeviceGetUtilizationRates", device, ctypes.byref(load)):  # a slice does not tell
            entry["load"] = load.gpu / 100
        found[name.value.decode()] = entry
    return found
