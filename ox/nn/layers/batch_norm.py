"""Normalization with running statistics: BatchNorm1d to 3d, InstanceNorm1d to 3d."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import ops
from ox.core.constants import ints, scalar
from ox.core.mode import switch_mode
from ox.dtypes import DType, float32, get_default_dtype, onnx_type
from ox.errors import OxError, ShapeError
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.layers.linear import explain_types
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor, make_tensor

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _NormBase(Module):
    """What they share: parameters, running statistics, explanations. `torch.nn.modules.batchnorm._NormBase`."""

    _version = 2  # 2: with num_batches_tracked

    ranks: tuple[int, ...] = ()
    layout = ""

    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: DType | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        kind = dtype or get_default_dtype()
        self.register_parameter("weight", Parameter(np.ones(num_features, kind)) if affine else None)
        self.register_parameter("bias", Parameter(np.zeros(num_features, kind)) if affine and bias else None)
        track = track_running_stats
        self.register_buffer("running_mean", make_tensor(np.zeros(num_features, kind)) if track else None)
        self.register_buffer("running_var", make_tensor(np.ones(num_features, kind)) if track else None)
        self.register_buffer("num_batches_tracked", make_tensor(np.zeros((), np.int64)) if track else None)
        self.reset_parameters()

    def _axis(self, rank: int) -> int:
        """Where the channels are."""
        return 1

    def _check_input_dim(self, input: Tensor) -> None:
        """Raise an error for an input of other dimensions than the layer takes."""
        if input.array.ndim not in self.ranks:
            raise ShapeError(
                f"{type(self).__name__} does not take {input.array.ndim} dimensions",
                expected=f"input {self.layout.format(self.num_features)}",
                got=f"input {list(input.static_shape)}",
            )

    def _part(self) -> float | Tensor:
        """The weight of this batch in the running statistics."""
        if self.momentum is not None:
            return self.momentum
        count = self.num_batches_tracked
        if count is None or not self.track_running_stats:
            return 0.0
        kind = float32 if self.running_mean is None else self.running_mean.array.dtype
        return ops.Reciprocal(ops.Cast(ops.Add(count, scalar(1, count.array.dtype)), to=onnx_type(kind)))

    def _count(self) -> None:
        """Count this batch; with its statistics, so that a recomputation of `checkpoint` does both or neither."""
        count = self.num_batches_tracked
        if count is not None and self.track_running_stats:
            count.assign(ops.Add(count, scalar(1, count.array.dtype)), "num_batches_tracked")

    def reset_parameters(self) -> None:
        """Back to weight 1, bias 0 and no batches."""
        self.reset_running_stats()
        for held, value in ((self.weight, 1), (self.bias, 0)):
            if held is not None:
                with switch_mode(grad=False):
                    held.fill_(value)

    def reset_running_stats(self) -> None:
        """Back to mean 0, variance 1, no batches."""
        for held, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if held is not None:
                with switch_mode(grad=False):
                    held.fill_(value)

    def _optional_keys(self, version: int | None) -> tuple[str, ...]:
        return ("num_batches_tracked",) if version is None or version < 2 else ()

    def explain(self, error: OxError, *args: Any) -> None:
        (x,) = args
        shape = x.static_shape
        if self.weight is not None and explain_types(error, x, self.weight):
            return
        axis = self._axis(len(shape))
        if self.ranks and (len(shape) not in self.ranks or shape[axis] != self.num_features):
            error.expected, error.got = f"input {self.layout.format(self.num_features)}", f"input {list(shape)}"
            if len(shape) in self.ranks:
                error.hint = f"nn.{type(self).__name__}({shape[axis]}), or check what comes before it"

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """`torch.nn.modules.batchnorm._BatchNorm`; a subclass checks its inputs in `_check_input_dim`."""

    def _statistics(self) -> tuple[Tensor | None, Tensor | None]:
        """Those to use or to update: none while training with `track_running_stats` switched off."""
        if self.training and not self.track_running_stats:
            return None, None
        return self.running_mean, self.running_var

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        part = self._part() if self.training else 0.0
        mean, var = self._statistics()
        training = self.training or (mean is None and var is None)
        y = F.batch_norm(input, mean, var, self.weight, self.bias, training, part, self.eps)
        if self.training:
            self._count()
        return y


class BatchNorm1d(_BatchNorm):
    """Normalize [N, C] or [N, C, L] over all but C. `torch.nn.BatchNorm1d`, ONNX BatchNormalization.

    Args:
        momentum: the part of a new batch in the running statistics (1 less ONNX's); None for the plain average.
    """

    ranks, layout = (2, 3), "[batch, {0}] or [batch, {0}, length]"


class BatchNorm2d(_BatchNorm):
    """Normalize [N, C, H, W] over all but C. `torch.nn.BatchNorm2d`, ONNX BatchNormalization.

    Args:
        momentum: the part of a new batch in the running statistics (1 less ONNX's); None for the plain average.
    """

    ranks, layout = (4,), "[batch, {0}, height, width]"


class BatchNorm3d(_BatchNorm):
    """Normalize [N, C, D, H, W] over all but C. `torch.nn.BatchNorm3d`, ONNX BatchNormalization.

    Args:
        momentum: the part of a new batch in the running statistics (1 less ONNX's); None for the plain average.
    """

    ranks, layout = (5,), "[batch, {0}, depth, height, width]"


class _InstanceNorm(_NormBase):
    """`torch.nn.modules.instancenorm._InstanceNorm`; a subclass checks its inputs in `_check_input_dim`, and
    in `_get_no_batch_dim` which of them has no batch."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        dtype: DType | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype=dtype, bias=bias)

    def _axis(self, rank: int) -> int:
        return int(rank == self.ranks[-1])

    def _get_no_batch_dim(self) -> int:
        """How many dimensions an input without a batch has."""
        return self.ranks[0]

    def _handle_no_batch_input(self, input: Tensor) -> Tensor:
        return ops.Squeeze(self._apply_instance_norm(ops.Unsqueeze(input, ints(0))), ints(0))

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        own = self.training or not self.track_running_stats
        part = 0.0 if self.momentum is None else self.momentum
        return F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias, own, part, self.eps)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if input.array.ndim == self._get_no_batch_dim():
            return self._handle_no_batch_input(input)
        return self._apply_instance_norm(input)


class InstanceNorm1d(_InstanceNorm):
    """Normalize each channel of each example of [N, C, L], or of [C, L]. `torch.nn.InstanceNorm1d`,
    ONNX InstanceNormalization.

    Args:
        track_running_stats: keep running statistics while training, and use them in evaluation.
    """

    ranks, layout = (2, 3), "[{0}, length] or [batch, {0}, length]"


class InstanceNorm2d(_InstanceNorm):
    """Normalize each channel of each example of [N, C, H, W], or of [C, H, W]. `torch.nn.InstanceNorm2d`,
    ONNX InstanceNormalization; arguments as for InstanceNorm1d."""

    ranks, layout = (3, 4), "[{0}, height, width] or [batch, {0}, height, width]"


class InstanceNorm3d(_InstanceNorm):
    """Normalize each channel of each example of [N, C, D, H, W], or of [C, D, H, W]. `torch.nn.InstanceNorm3d`,
    ONNX InstanceNormalization; arguments as for InstanceNorm1d."""

    ranks, layout = (4, 5), "[{0}, depth, height, width] or [batch, {0}, depth, height, width]"
