"""NVIDIA's management library (NVML), which is part of the driver: GPUs, MIG slices, and the processes on them.

Only the standard library is imported. Source: NVML API reference, "Device Queries" and "Multi Instance GPU Management".
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ox.devices.machine import device_uuid

PROCESSES = 64  # of one GPU; more are asked for again
TOO_FEW = 7  # NVML_ERROR_INSUFFICIENT_SIZE, with the number of them
TRIES = 3  # more may come meanwhile
UNKNOWN = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE
MISSING = 13  # NVML_ERROR_FUNCTION_NOT_FOUND: an older driver
MIB = 1 << 20
OTHERS = "other processes"  # a label of errors, which clients of a server do not see


class Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _ProcessInfo(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Process(NamedTuple):
    """A process on a GPU: its number and name, and the bytes that it holds there; None where NVML does not tell."""

    pid: int
    name: str
    bytes: int | None

    def __str__(self) -> str:
        held = "" if self.bytes is None else f" {self.bytes // MIB:,} MiB"
        return f"{self.pid}{f' ({self.name})' if self.name else ''}{held}"


@cache
def library() -> Any:
    """The driver's library, begun; None without one."""
    try:
        loaded = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return loaded if loaded.nvmlInit_v2() == 0 else None


def call(nvml: Any, name: str, *arguments: Any) -> int:
    """What a function of the library returns, 0 for success; MISSING where an older driver does not have it."""
    try:
        function = getattr(nvml, name)
    except AttributeError:
        return MISSING
    return int(function(*arguments))


def devices(nvml: Any) -> list[ctypes.c_void_p]:
    """All GPUs of the machine; in place of one that is split by MIG, its slices."""
    count = ctypes.c_uint()
    if call(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count)):
        return []
    handles: list[ctypes.c_void_p] = []
    for index in range(count.value):
        device = ctypes.c_void_p()
        if not call(nvml, "nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device)):
            handles += _slices(nvml, device) if _is_split(nvml, device) else [device]
    return handles


def _is_split(nvml: Any, device: ctypes.c_void_p) -> bool:
    now, later = ctypes.c_uint(), ctypes.c_uint()
    return not call(nvml, "nvmlDeviceGetMigMode", device, ctypes.byref(now), ctypes.byref(later)) and now.value == 1


def _slices(nvml: Any, device: ctypes.c_void_p) -> list[ctypes.c_void_p]:
    count, handles = ctypes.c_uint(), []
    call(nvml, "nvmlDeviceGetMaxMigDeviceCount", device, ctypes.byref(count))
    for index in range(count.value):
        each = ctypes.c_void_p()
        if not call(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", device, index, ctypes.byref(each)):
            handles.append(each)
    return handles


def of_cuda(number: int, nvml: Any) -> ctypes.c_void_p | None:
    """The GPU or the MIG slice that CUDA has by this number: CUDA_VISIBLE_DEVICES gives others than NVML."""
    uuid, device = device_uuid(number), ctypes.c_void_p()
    for kind in ("MIG", "GPU"):
        name = f"{kind}-{uuid}".encode()
        if uuid is not None and not call(nvml, "nvmlDeviceGetHandleByUUID", name, ctypes.byref(device)):
            return device
    return None


def processes(number: int) -> list[Process]:
    """The processes that compute on the GPU or the MIG slice that CUDA has by this number, this one among them; those
    that hold most first. Empty where the driver does not tell. In a container, numbers may be those of the host."""
    nvml = library()
    device = None if nvml is None else of_cuda(number, nvml)
    count, failed = ctypes.c_uint(PROCESSES), TOO_FEW
    for _ in range(TRIES if device is not None else 0):
        infos = (_ProcessInfo * count.value)()
        failed = call(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), infos)
        if failed != TOO_FEW:
            break
    if failed:
        return []
    listed = [
        Process(info.pid, _name(info.pid), None if info.memory == UNKNOWN else int(info.memory))
        for info in infos[: count.value]
    ]
    return sorted(listed, key=lambda process: -(process.bytes or 0))


def others(number: int) -> str:
    """The other processes on a GPU, in words: "4711 (python3) 500 MiB"; "" if there are none, or nothing tells."""
    return ", ".join(str(process) for process in processes(number) if process.pid != os.getpid())


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
