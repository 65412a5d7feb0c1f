"""Normalization with running statistics: BatchNorm1d to 3d, InstanceNorm1d to 3d."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import ops
from ox.dtypes import DType, float32, get_default_dtype, onnx_type
from ox.errors import OxError, ShapeError
from ox.nn import functional as F
from ox.nn.functional.common import ints
from ox.nn.linear import explain_types
from ox.nn.module import Module
from ox.nn.parameter import Parameter
from ox.operands import scalar
from ox.ops.mode import switched
from ox.tensor import Tensor, make_tensor


class RunningNorm(Module):
    """What they share: parameters, running statistics, explanations."""

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

    def _axis(self, rank: int) -> int:
        """Where the channels are."""
        return 1

    def _check_rank(self, input: Tensor) -> None:
        if input.array.ndim not in self.ranks:
            raise ShapeError(
                f"{type(self).__name__} does not take {input.array.ndim} dimensions",
                expected=f"input {self.layout.format(self.num_features)}",
                got=f"input {list(input.array.shape)}",
            )

    def _count(self) -> float | Tensor:
        """Count this batch, and say which part of the running statistics it becomes."""
        if self.num_batches_tracked is None:
            return 0.0
        with switched(grad=False):
            count = self.num_batches_tracked
            count.assign(ops.Add(count, scalar(1, count.array.dtype)), "num_batches_tracked")
            if self.momentum is not None:
                return self.momentum
            kind = float32 if self.running_mean is None else self.running_mean.array.dtype
            return ops.Reciprocal(ops.Cast(count, to=onnx_type(kind)))

    def reset_parameters(self) -> None:
        """Back to weight 1, bias 0 and no batches."""
        self.reset_running_stats()
        for held, value in ((self.weight, 1), (self.bias, 0)):
            if held is not None:
                with switched(grad=False):
                    held.fill_(value)

    def reset_running_stats(self) -> None:
        """Back to mean 0, variance 1, no batches."""
        for held, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if held is not None:
                with switched(grad=False):
                    held.fill_(value)

    def explain(self, error: OxError, *args: Any) -> None:
        (x,) = args
        shape = x.array.shape
        if self.weight is not None and explain_types(error, x, self.weight):
            return
        axis = self._axis(len(shape))
        if len(shape) not in self.ranks or shape[axis] != self.num_features:
            error.expected, error.got = f"input {self.layout.format(self.num_features)}", f"input {list(shape)}"
            if len(shape) in self.ranks:
                error.hint = f"nn.{type(self).__name__}({shape[axis]}), or check what comes before it"

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(RunningNorm):
    def forward(self, input: Tensor) -> Tensor:
        self._check_rank(input)
        mean, var = self.running_mean, self.running_var
        training = self.training or mean is None
        part = self._count() if self.training else 0.0
        return F.batch_norm(input, mean, var, self.weight, self.bias, training, part, self.eps)


class BatchNorm1d(_BatchNorm):
    """Normalise [N, C] or [N, C, L] over all but C. `torch.nn.BatchNorm1d`, ONNX BatchNormalization.

    Args:
        momentum: the part of a new batch in the running statistics (1 less ONNX's); None for the plain average.
    """

    ranks, layout = (2, 3), "[batch, {0}] or [batch, {0}, length]"


class BatchNorm2d(_BatchNorm):
    """Normalise [N, C, H, W] over all but C. `torch.nn.BatchNorm2d`, ONNX BatchNormalization.

    Args:
        momentum: the part of a new batch in the running statistics (1 less ONNX's); None for the plain average.
    """

    ranks, layout = (4,), "[batch, {0}, height, width]"


class BatchNorm3d(_BatchNorm):
    """Normalise [N, C, D, H, W] over all but C. `torch.nn.BatchNorm3d`, ONNX BatchNormalization.

    Args:
        momentum: the part of a new batch in the running statistics (1 less ONNX's); None for the plain average.
    """

    ranks, layout = (5,), "[batch, {0}, depth, height, width]"


class _InstanceNorm(RunningNorm):
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

    def forward(self, input: Tensor) -> Tensor:
        self._check_rank(input)
        batched = self._axis(input.array.ndim) == 1
        x = input if batched else ops.Unsqueeze(input, ints(0))
        own = self.training or not self.track_running_stats
        part = 0.0 if self.momentum is None else self.momentum
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias, own, part, self.eps)
        return y if batched else ops.Squeeze(y, ints(0))


class InstanceNorm1d(_InstanceNorm):
    """Normalise each channel of each example of [N, C, L], or of [C, L]. `torch.nn.InstanceNorm1d`,
    ONNX InstanceNormalization.

    Args:
        track_running_stats: keep running statistics while training, and use them in evaluation.
    """

    ranks, layout = (2, 3), "[{0}, length] or [batch, {0}, length]"


class InstanceNorm2d(_InstanceNorm):
    """Normalise each channel of each example of [N, C, H, W], or of [C, H, W]. `torch.nn.InstanceNorm2d`,
    ONNX InstanceNormalization; arguments as for InstanceNorm1d."""

    ranks, layout = (3, 4), "[{0}, height, width] or [batch, {0}, height, width]"


class InstanceNorm3d(_InstanceNorm):
    """Normalise each channel of each example of [N, C, D, H, W], or of [C, D, H, W]. `torch.nn.InstanceNorm3d`,
    ONNX InstanceNormalization; arguments as for InstanceNorm1d."""

    ranks, layout = (4, 5), "[{0}, depth, height, width] or [batch, {0}, depth, height, width]"
