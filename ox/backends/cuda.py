"""`torch.backends.cuda`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ox.backends.sdp import SDPBackend
from ox.backends.sdp import sdpa_kernel as _sdpa_kernel
from ox.devices.gpu import matmul_precision
from ox.devices.gpu.cupy_device import available as is_built
from ox.errors import ArgumentError

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


class Matmul:
    """`torch.backends.cuda.matmul`. TF32 is for MatMul, Gemm and attention of float32 on a GPU; halves are added up in
    float32 whatever the others say."""

    allow_fp16_reduced_precision_reduction = False
    allow_bf16_reduced_precision_reduction = False

    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 may round their factors to TF32."""
        return matmul_precision.allows_tf32()

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        matmul_precision.allow_tf32(bool(allowed))

    @property
    def fp32_precision(self) -> str:
        """The same as "tf32" or "ieee"."""
        return "tf32" if matmul_precision.allows_tf32() else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in ("tf32", "ieee", "none"):
            raise ArgumentError("there is no such precision", expected="'ieee' or 'tf32'", got=repr(precision))
        matmul_precision.allow_tf32(precision == "tf32")


matmul = Matmul()
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
