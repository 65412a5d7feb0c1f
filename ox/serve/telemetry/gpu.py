"""Memory and load of NVIDIA GPUs, read from the driver's library (NVML)."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Load(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


@cache
def library() -> Any:
    """The driver's library, begun; None without one."""
    try:
        found = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return found if found.nvmlInit_v2() == 0 else None


def figures(nvml: Any = None) -> dict[str, dict[str, float]]:
    """By each GPU's id: bytes `used` and `total`, `load` from 0 to 1. Empty without a driver."""
    nvml = nvml or library()
    count = ctypes.c_uint()
    if nvml is None or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return {}
    found: dict[str, dict[str, float]] = {}
    for index in range(count.value):
        device, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        memory, load = _Memory(), _Load()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
            continue
        if nvml.nvmlDeviceGetUUID(device, name, len(name)) or nvml.nvmlDeviceGetMemoryInfo(
            device, ctypes.byref(memory)
        ):
            continue
        entry = {"used": float(memory.used), "total": float(memory.total)}
        if not nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(load)):  # a part of a GPU does not tell
            entry["load"] = load.gpu / 100
        found[name.value.decode()] = entry
    return found
