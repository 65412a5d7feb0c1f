"""`torch.backends.cudnn`. The switches have PyTorch's meaning. Their defaults give the same bits in each run:
`deterministic` is True and `allow_tf32` False, where PyTorch has False and True."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from ox.devices.gpu import cudnn, cudnn_settings
from ox.devices.gpu.cupy_device import available
from ox.errors import ArgumentError

# of _Module, below
enabled: bool
deterministic: bool
allow_tf32: bool
benchmark: bool
benchmark_limit: int
fp32_precision: str

__all__ = ["flags", "is_acceptable", "is_available", "version"]


def is_available() -> bool:
    """Whether there is a GPU, and cuDNN with its frontend (``ox-onnx[cudnn]``). `torch.backends.cudnn.is_available`."""
    return available() and cudnn.library() is not None


def version() -> int | None:
    """The version of cuDNN, as 92801 for 9.28.1; None without it. `torch.backends.cudnn.version`."""
    return int(cudnn.library().backend_version()) if is_available() else None


def is_acceptable(tensor: Any) -> bool:
    """Whether a tensor is on a GPU. `torch.backends.cudnn.is_acceptable`."""
    return bool(tensor.is_cuda)


def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> AbstractContextManager[None]:
    """A block with these switches; what is left out takes PyTorch's default for this function.
    `torch.backends.cudnn.flags`.

    Raises:
        ArgumentError: no such precision.
    """
    tf32 = allow_tf32 if fp32_precision == "none" else _is_tf32(fp32_precision)
    return cudnn_settings.changed(
        enabled=enabled, benchmark=benchmark, benchmark_limit=benchmark_limit, deterministic=deterministic,
        allow_tf32=tf32,
    )  # fmt: skip


def _is_tf32(precision: str) -> bool:
    if precision not in ("tf32", "ieee", "none"):
        raise ArgumentError("there is no such precision", expected="'ieee' or 'tf32'", got=repr(precision))
    return precision == "tf32"


def _switch(name: str, kind: type) -> Any:
    def get(module: ModuleType) -> Any:
        return getattr(cudnn_settings.current(), name)

    def set_(module: ModuleType, value: Any) -> None:
        cudnn_settings.change(**{name: kind(value)})

    return property(get, set_)


class _Module(ModuleType):
    """A module whose switches are those of `ox.devices.gpu.cudnn_settings`."""

    enabled = _switch("enabled", bool)
    deterministic = _switch("deterministic", bool)
    allow_tf32 = _switch("allow_tf32", bool)
    benchmark = _switch("benchmark", bool)
    benchmark_limit = _switch("benchmark_limit", int)

    @property
    def fp32_precision(self) -> str:
        """ "tf32" or "ieee": the same as `allow_tf32`."""
        return "tf32" if cudnn_settings.current().allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        cudnn_settings.change(allow_tf32=_is_tf32(precision))


sys.modules[__name__].__class__ = _Module
