"""Convolutions that learn their number of input channels from their first input."""

from __future__ import annotations

from typing import Any

from ox.errors import ShapeError
from ox.nn.base.uninitialized import UninitializedParameter
from ox.nn.layers.conv import Conv1d, Conv2d, Conv3d, _ConvNd
from ox.nn.layers.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ox.nn.layers.lazy import LazyModuleMixin
from ox.tensors.tensor import Tensor

__all__ = [
    "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
]  # fmt: skip


class _LazyConvolution(LazyModuleMixin, _ConvNd):
    """The arguments of `cls_to_become` without `in_channels`."""

    def __init__(self, out_channels: int, kernel_size: Any, *args: Any, **kwargs: Any) -> None:
        dtype = kwargs.get("dtype")
        super().__init__(0, 0, kernel_size, *args, **kwargs)
        self.out_channels = out_channels
        biased = self.bias is not None
        self.weight = UninitializedParameter(dtype=dtype)
        if biased:
            self.bias = UninitializedParameter(dtype=dtype)

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if self.has_uninitialized_params():
            shape = input.static_shape
            if len(shape) not in (self.rank + 1, self.rank + 2):
                raise ShapeError(
                    f"{type(self).__name__} does not take {len(shape)} dimensions",
                    expected=f"{self.rank + 2}, or {self.rank + 1} without the batch",
                    got=f"input {list(shape)}",
                )
            self.in_channels = int(shape[-self.rank - 1])
            if self.in_channels % self.groups or self.out_channels % self.groups:
                raise ShapeError(
                    "groups must divide the channels",
                    got=f"{self.in_channels} and {self.out_channels} channels, groups={self.groups}",
                )
            self.weight.materialize(self._weight_shape())  # type: ignore[attr-defined]
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))  # type: ignore[attr-defined]
            self.reset_parameters()
        # a loaded state may have given the shapes
        shape = self.weight.static_shape
        self.in_channels = int(shape[0] if self.transposed else shape[1] * self.groups)


class LazyConv1d(_LazyConvolution, Conv1d):
    """A Conv1d whose `in_channels` the first input decides. `torch.nn.LazyConv1d`."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvolution, Conv2d):
    """A Conv2d whose `in_channels` the first input decides. `torch.nn.LazyConv2d`."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvolution, Conv3d):
    """A Conv3d whose `in_channels` the first input decides. `torch.nn.LazyConv3d`."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvolution, ConvTranspose1d):
    """A ConvTranspose1d whose `in_channels` the first input decides. `torch.nn.LazyConvTranspose1d`."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvolution, ConvTranspose2d):
    """A ConvTranspose2d whose `in_channels` the first input decides. `torch.nn.LazyConvTranspose2d`."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvolution, ConvTranspose3d):
    """A ConvTranspose3d whose `in_channels` the first input decides. `torch.nn.LazyConvTranspose3d`."""

    cls_to_become = ConvTranspose3d
