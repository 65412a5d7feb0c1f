"""`torch.backends.cuda`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ox.backends.sdp import SDPBackend
from ox.backends.sdp import sdpa_kernel as _sdpa_kernel
from ox.devices.cuda import available as is_built

__all__ = [
    "SDPBackend",
    "cudnn_sdp_enabled",
    "cufft_plan_cache",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "is_built",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_linalg_library",
    "sdp_kernel",
]

matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=False,
    allow_bf16_reduced_precision_reduction=False,
    fp32_precision="ieee",
)
cufft_plan_cache = SimpleNamespace(max_size=0, size=0, clear=lambda: None)


def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Any:
    """A block in which nothing differs. `torch.backends.cuda.sdp_kernel`."""
    return _sdpa_kernel()


def enable_flash_sdp(enabled: bool) -> None:
    """Nothing: attention has one kernel. `torch.backends.cuda.enable_flash_sdp`."""


enable_cudnn_sdp = enable_math_sdp = enable_mem_efficient_sdp = enable_flash_sdp


def math_sdp_enabled() -> bool:
    """True: the formula is computed as it stands. `torch.backends.cuda.math_sdp_enabled`."""
    return True


def flash_sdp_enabled() -> bool:
    """False. `torch.backends.cuda.flash_sdp_enabled`."""
    return False


cudnn_sdp_enabled = mem_efficient_sdp_enabled = flash_sdp_enabled


def preferred_linalg_library(backend: Any = None) -> None:
    """Nothing: there is one. `torch.backends.cuda.preferred_linalg_library`."""
