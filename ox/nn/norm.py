"""BatchNorm1d, BatchNorm2d, LayerNorm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox import ops
from ox.dtypes import DType, float32, get_default_dtype, onnx_type
from ox.errors import OxError, ShapeError
from ox.nn import functional as F
from ox.nn.linear import explain_types
from ox.nn.module import Module
from ox.nn.parameter import Parameter
from ox.operands import scalar
from ox.ops.mode import switched
from ox.tensor import Tensor


class _BatchNorm(Module):
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
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        kind = dtype or get_default_dtype()
        self.register_parameter("weight", Parameter(np.ones(num_features, kind)) if affine else None)
        self.register_parameter("bias", Parameter(np.zeros(num_features, kind)) if affine else None)
        track = track_running_stats
        self.register_buffer("running_mean", Tensor(np.zeros(num_features, kind)) if track else None)
        self.register_buffer("running_var", Tensor(np.ones(num_features, kind)) if track else None)
        self.register_buffer("num_batches_tracked", Tensor(np.zeros((), np.int64)) if track else None)

    def forward(self, input: Tensor) -> Tensor:
        if input.data.ndim not in self.ranks:
            raise ShapeError(
                f"{type(self).__name__} does not take {input.data.ndim} dimensions",
                expected=f"input {self.layout.format(self.num_features)}",
                got=f"input {list(input.data.shape)}",
            )
        mean, var = self.running_mean, self.running_var
        training = self.training or mean is None
        return F.batch_norm(
            input, mean, var, self.weight, self.bias, training, self._count() if training else 0.0, self.eps
        )

    def _count(self) -> float | Tensor:
        """Count this batch, and say which part of the running statistics it becomes."""
        if self.num_batches_tracked is None:
            return 0.0
        with switched(grad=False):
            count = self.num_batches_tracked
            count.assign(ops.Add(count, scalar(1, count.data.dtype)), "BatchNorm.num_batches_tracked")
            if self.momentum is not None:
                return self.momentum
            kind = float32 if self.running_mean is None else self.running_mean.data.dtype
            return ops.Reciprocal(ops.Cast(count, to=onnx_type(kind)))

    def reset_running_stats(self) -> None:
        """Back to mean 0, variance 1, no batches."""
        for held, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if held is not None:
                with switched(grad=False):
                    held.fill_(value)

    def explain(self, error: OxError, *args: Any) -> None:
        (x,) = args
        shape = x.data.shape
        if self.weight is not None and explain_types(error, x, self.weight):
            return
        if len(shape) not in self.ranks or shape[1] != self.num_features:
            error.expected, error.got = f"input {self.layout.format(self.num_features)}", f"input {list(shape)}"
            if len(shape) in self.ranks:
                error.hint = f"nn.{type(self).__name__}({shape[1]}), or check what comes before it"

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


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


class LayerNorm(Module):
    """Normalise over the last dimensions. `torch.nn.LayerNorm`, ONNX LayerNormalization.

    weight (ones) and bias (zeros) of `normalized_shape`, if `elementwise_affine`.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        kind = dtype or get_default_dtype()
        self.register_parameter("weight", Parameter(np.ones(shape, kind)) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(np.zeros(shape, kind)) if elementwise_affine and bias else None)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def explain(self, error: OxError, *args: Any) -> None:
        if self.weight is not None and explain_types(error, args[0], self.weight):
            return
        tail = list(args[0].data.shape[-len(self.normalized_shape) :])
        if tail != list(self.normalized_shape):
            error.hint = f"nn.LayerNorm({tail[0] if len(tail) == 1 else tail}), or check what comes before it"

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )
