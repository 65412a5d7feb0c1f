"""Pools to a given size as modules."""

from __future__ import annotations

from typing import Any

from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.functional.adaptive_pool import OutputSize
from ox.tensors.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
]  # fmt: skip


class _AdaptiveAvgPool(Module):
    rank: int

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[self.rank - 1]
        return pool(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over windows such that the output is [N, C, output_size]. `torch.nn.AdaptiveAvgPool1d`."""

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over windows such that the output is [N, C, *output_size]; None keeps a size.
    `torch.nn.AdaptiveAvgPool2d`, ONNX GlobalAveragePool for 1."""

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The same over [N, C, D, H, W]. `torch.nn.AdaptiveAvgPool3d`."""

    rank = 3


class _AdaptiveMaxPool(Module):
    rank: int

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Any:
        pool = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[self.rank - 1]
        return pool(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Largest of windows such that the output is [N, C, output_size]. `torch.nn.AdaptiveMaxPool1d`."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Largest of windows such that the output is [N, C, *output_size]; None keeps a size.
    `torch.nn.AdaptiveMaxPool2d`, ONNX GlobalMaxPool for 1."""

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The same over [N, C, D, H, W]. `torch.nn.AdaptiveMaxPool3d`."""

    rank = 3
