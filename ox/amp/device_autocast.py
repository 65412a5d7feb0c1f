"""Older functions of autocast, one for each device."""

from __future__ import annotations

from ox.amp.autocasting import get_autocast_dtype, is_autocast_enabled, set_autocast_dtype, set_autocast_enabled
from ox.dtypes import DType


def get_autocast_gpu_dtype() -> DType:
    """``get_autocast_dtype("cuda")``. `torch.get_autocast_gpu_dtype`."""
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> DType:
    """``get_autocast_dtype("cpu")``. `torch.get_autocast_cpu_dtype`."""
    return get_autocast_dtype("cpu")


def set_autocast_gpu_dtype(dtype: DType) -> None:
    """``set_autocast_dtype("cuda", dtype)``. `torch.set_autocast_gpu_dtype`."""
    set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_dtype(dtype: DType) -> None:
    """``set_autocast_dtype("cpu", dtype)``. `torch.set_autocast_cpu_dtype`."""
    set_autocast_dtype("cpu", dtype)


def is_autocast_cpu_enabled() -> bool:
    """``is_autocast_enabled("cpu")``. `torch.is_autocast_cpu_enabled`."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """``set_autocast_enabled("cpu", enabled)``. `torch.set_autocast_cpu_enabled`."""
    set_autocast_enabled("cpu", enabled)
