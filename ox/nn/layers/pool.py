"""Pools under a moving window as modules, and what undoes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.errors import ArgumentError
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.functional.arguments import several
from ox.nn.functional.pool import Size
from ox.tensors.tensor import Tensor

__all__ = [
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d",
    "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _MaxPool(Module):
    rank: int

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[self.rank - 1]
        return pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """Largest of each window of [N, C, L]. `torch.nn.MaxPool1d`, ONNX MaxPool."""

    rank = 1


class MaxPool2d(_MaxPool):
    """Largest of each window of [N, C, H, W]. `torch.nn.MaxPool2d`, ONNX MaxPool."""

    rank = 2


class MaxPool3d(_MaxPool):
    """Largest of each window of [N, C, D, H, W]. `torch.nn.MaxPool3d`, ONNX MaxPool."""

    rank = 3


class _AvgPool(Module):
    rank: int

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        pool = F.avg_pool2d if self.rank == 2 else F.avg_pool3d
        return pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """Mean of each window of [N, C, L]. `torch.nn.AvgPool1d`, ONNX AveragePool."""

    rank = 1

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        sizes = (self.kernel_size, self.stride, self.padding)
        self.kernel_size, self.stride, self.padding = ((s,) if isinstance(s, int) else s for s in sizes)

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool2d(_AvgPool):
    """Mean of each window; padding counts unless `count_include_pad` is False. `torch.nn.AvgPool2d`,
    ONNX AveragePool."""

    rank = 2


class AvgPool3d(_AvgPool):
    """Mean of each window of [N, C, D, H, W]. `torch.nn.AvgPool3d`, ONNX AveragePool."""

    rank = 3


class _LPPool(Module):
    rank: int

    def __init__(
        self, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        pool = (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)[self.rank - 1]
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """(Σ xᵖ)^(1/p) of each window of [N, C, L]. `torch.nn.LPPool1d`."""

    rank = 1


class LPPool2d(_LPPool):
    """(Σ xᵖ)^(1/p) of each window of [N, C, H, W]. `torch.nn.LPPool2d`."""

    rank = 2


class LPPool3d(_LPPool):
    """(Σ xᵖ)^(1/p) of each window of [N, C, D, H, W]. `torch.nn.LPPool3d`."""

    rank = 3


class _MaxUnpool(Module):
    rank: int

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        self.kernel_size = several(kernel_size, self.rank, "kernel_size", 1)
        self.stride = self.kernel_size if stride is None else several(stride, self.rank, "stride", 1)
        self.padding = several(padding, self.rank, "padding", 0)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[self.rank - 1]
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Values back where a MaxPool1d with `return_indices` took them from. `torch.nn.MaxUnpool1d`."""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Values back where a MaxPool2d with `return_indices` took them from. `torch.nn.MaxUnpool2d`."""

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Values back where a MaxPool3d with `return_indices` took them from. `torch.nn.MaxUnpool3d`."""

    rank = 3


class _FractionalMaxPool(Module):
    rank: int

    def __init__(
        self,
        kernel_size: Size,
        output_size: Size | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(
                f"{type(self).__name__} takes either output_size or output_ratio",
                got=f"output_size={output_size}, output_ratio={output_ratio}",
            )
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices, self._samples = return_indices, _random_samples

    def forward(self, input: Tensor) -> Any:
        pool = F.fractional_max_pool2d if self.rank == 2 else F.fractional_max_pool3d
        return pool(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Largest of windows with random places. `torch.nn.FractionalMaxPool2d`."""

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The same over [N, C, D, H, W]. `torch.nn.FractionalMaxPool3d`."""

    rank = 3
