"""`torch.backends.cuda`."""

from types import SimpleNamespace

from ox.devices.cuda import available as is_built

__all__ = ["is_built", "matmul"]

matmul = SimpleNamespace(
    allow_tf32=False, allow_fp16_reduced_precision_reduction=False, allow_bf16_reduced_precision_reduction=False
)
