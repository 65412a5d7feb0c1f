"""The GPUs of this process for people: number, name, compute capability and memory, and what will fail on them."""

from __future__ import annotations

import os

from ox.devices.gpu import cupy_device as cuda

VISIBLE = "CUDA_VISIBLE_DEVICES"
GIB = 1 << 30
LITTLE = GIB  # bytes free, under which a context of CUDA and its libraries leave next to nothing


def described(names: tuple[str, ...]) -> list[str]:
    """A text for each GPU; without CuPy, by the names that the driver gives."""
    if not cuda.available():
        return [f"cuda:{number} {name}" for number, name in enumerate(names)]
    found = []
    for number in range(cuda.device_count()):
        (major, minor), held = cuda.capability(number), cuda.memory(f"cuda:{number}")
        memory = f"{held.free / GIB:.1f} of {held.total / GIB:.1f} GiB free"
        found.append(f"cuda:{number} {cuda.device_name(number)} (compute capability {major}.{minor}, {memory})")
    return found


def warnings() -> list[str]:
    """What will be an error on one of the GPUs, with the way out; and where the environment hides some."""
    found = []
    if (chosen := os.environ.get(VISIBLE)) is not None:
        found.append(f"{VISIBLE}={chosen}: other GPUs of this machine are hidden, and cuda:0 is the first of these")
    for number in range(cuda.device_count()):
        if cuda.capability(number) < cuda.BFLOAT16:
            found.append(f"cuda:{number} does not multiply bfloat16 · float16: ox train --amp fp16, ox.GradScaler")
        if (held := cuda.memory(f"cuda:{number}")).free < LITTLE:
            free = f"{held.free >> 20:,} of {held.total >> 20:,} MiB free"
            found.append(f"cuda:{number} is nearly full: {free} · nvidia-smi shows the processes that hold the rest")
    return found
