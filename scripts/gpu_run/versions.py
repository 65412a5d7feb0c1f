"""The versions and the card: `python -m gpu_run.versions FILE`."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from gpu_run import device

DISTRIBUTIONS = (
    "numpy", "cupy-cuda13x", "cupy-cuda12x", "onnx", "onnxruntime", "onnxruntime-gpu", "torch", "nvidia-cudnn-cu13",
    "nvidia-cudnn-cu12", "nvidia-nccl-cu13", "nvidia-nccl-cu12",
)  # fmt: skip


def card() -> dict[str, Any]:
    """Of the first device: its name, memory and compute capability, and how many there are."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "name": properties["name"].decode(),
        "memory, GiB": round(properties["totalGlobalMem"] / 2**30),
        "multiprocessors": properties["multiProcessorCount"],
        "compute capability": f"{properties['major']}.{properties['minor']}",
        "devices": cupy.cuda.runtime.getDeviceCount(),
    }


def driver() -> str:
    file = Path("/proc/driver/nvidia/version")
    return file.read_text().splitlines()[0] if file.exists() else "unknown (no /proc/driver/nvidia/version)"


def cuda() -> dict[str, str]:
    """Which version of CUDA the driver is for, and that of the runtime."""
    import cupy

    runtime = cupy.cuda.runtime
    return {"driver": dotted(runtime.driverGetVersion()), "runtime": dotted(runtime.runtimeGetVersion())}


def nvrtc() -> str:
    import cupy

    return ".".join(map(str, cupy.cuda.nvrtc.getVersion()))


def dotted(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def nccl() -> str:
    from cupy.cuda import nccl as library

    return str(library.get_version())


def torch_sees() -> str:
    import torch

    return f"{torch.__version__}, a GPU: {torch.cuda.is_available()}"


def runtime_providers() -> str:
    import onnxruntime

    return ", ".join(onnxruntime.get_available_providers())


def distributions() -> dict[str, str]:
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


QUESTIONS: dict[str, Callable[[], Any]] = {
    "card": card,
    "driver": driver,
    "CUDA": cuda,
    "NVRTC": nvrtc,
    "python": platform.python_version,
    "packages": distributions,
    "ONNX Runtime's providers": runtime_providers,
    "NCCL": nccl,
    "PyTorch": torch_sees,
}


def main() -> None:
    device.prepare()
    found: dict[str, Any] = {}
    for name, ask in QUESTIONS.items():
        try:
            found[name] = ask()
        except Exception as error:
            found[name] = f"unknown: {device.one_line(error)}"
        print(f"{name}: {found[name]}")
        device.write({"versions": found})  # what is asked next may hang


if __name__ == "__main__":
    main()
