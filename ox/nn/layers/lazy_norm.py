"""Normalization that learns its number of channels from its first input."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.dtypes import DType
from ox.errors import ShapeError
from ox.nn.base.uninitialized import UninitializedBuffer, UninitializedParameter
from ox.nn.layers.batch_norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    _NormBase,
)
from ox.nn.layers.lazy import LazyModuleMixin
from ox.tensors.tensor import Tensor

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]  # fmt: skip


class _LazyNorm(LazyModuleMixin, _NormBase):
    """The arguments of BatchNorm without `num_features`, with its defaults for InstanceNorm too, as in PyTorch."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: DType | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, affine, track_running_stats, dtype=dtype, bias=bias)
        for name, held in list(self._parameters.items()):
            if held is not None:
                setattr(self, name, UninitializedParameter(dtype=dtype))
        for name in ("running_mean", "running_var"):
            if self._buffers[name] is not None:
                self.register_buffer(name, UninitializedBuffer(dtype=dtype))

    def reset_parameters(self) -> None:
        """Nothing before the first input."""
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_parameters()

    def reset_running_stats(self) -> None:
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_running_stats()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        shape = input.static_shape
        if len(shape) not in self.ranks:
            raise ShapeError(
                f"{type(self).__name__} does not take {len(shape)} dimensions",
                expected=f"input {self.layout.format('C')}",
                got=f"input {list(shape)}",
            )
        self.num_features = int(shape[self._axis(len(shape))])
        held = {**self._parameters, **self._buffers}
        for name, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
            waiting: Any = held[name]
            if isinstance(waiting, (UninitializedParameter, UninitializedBuffer)):
                waiting.materialize((self.num_features,))
                waiting.array[...] = np.asarray(value, waiting.array.dtype)


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A BatchNorm1d whose `num_features` the first input decides. `torch.nn.LazyBatchNorm1d`."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A BatchNorm2d whose `num_features` the first input decides. `torch.nn.LazyBatchNorm2d`."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A BatchNorm3d whose `num_features` the first input decides. `torch.nn.LazyBatchNorm3d`."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An InstanceNorm1d whose `num_features` the first input decides. `torch.nn.LazyInstanceNorm1d`."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An InstanceNorm2d whose `num_features` the first input decides. `torch.nn.LazyInstanceNorm2d`."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An InstanceNorm3d whose `num_features` the first input decides. `torch.nn.LazyInstanceNorm3d`."""

    cls_to_become = InstanceNorm3d
