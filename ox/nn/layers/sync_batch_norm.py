"""SyncBatchNorm: the statistics of a batch that is split over several processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import distributed as dist
from ox import ops
from ox.autograd.function import Function, once_differentiable
from ox.core.constants import axes_tensor, scalar
from ox.core.mode import MODE, cannot_record, switch_mode
from ox.core.operator import make_tensor
from ox.core.promotion import cast
from ox.dtypes import DType, float64
from ox.errors import OxError, RecordError, ShapeError
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.layers.batch_norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm
from ox.nn.layers.linear import explain_types
from ox.ops.nn.normalization import column_of, computed_type
from ox.tensors.tensor import Tensor


class SyncBatchNorm(_BatchNorm):
    """BatchNorm1d to 3d of [N, C, ...], with mean and variance of all ranks' inputs while training. N and the sizes
    behind C may differ from rank to rank, N may be 0. `torch.nn.SyncBatchNorm`, ONNX BatchNormalization.

    In evaluation, without a process group, and in one of a single rank it is BatchNorm, and exports as that. Its ranks
    run their forwards and backwards in the same order. Backward through it goes once: no gradient of a gradient.

    Args:
        momentum: the part of a new batch in the running statistics; None for the plain average.
        process_group: the ranks that belong together; all by default.

    Raises:
        ShapeError: one value a channel over all ranks, or no channels.
        RecordError: recorded while training with several ranks: a graph does not know of them.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        *,
        dtype: DType | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype=dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.array.ndim < 2:
            raise ShapeError(
                "SyncBatchNorm takes two dimensions or more",
                expected=f"input [batch, {self.num_features}, ...]",
                got=f"input {list(input.static_shape)}",
            )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        training = self.training or (self.running_mean is None and self.running_var is None)
        mean, var = self._statistics()
        # as in PyTorch, statistics that are not kept are in evaluation each rank's own
        if not (self.training and dist.is_initialized() and dist.get_world_size(self.process_group) > 1):
            part = self._part() if self.training else 0.0
            y = F.batch_norm(input, mean, var, self.weight, self.bias, training, part, self.eps)
            if self.training:
                self._count()
            return y
        if MODE.get().recording is not None:
            cannot_record(
                RecordError(
                    "SyncBatchNorm was recorded while training on several ranks",
                    hint="model.eval() before the export; a graph does not know of other ranks",
                )
            )
        if input.static_shape[1] != self.num_features:
            raise ShapeError(f"SyncBatchNorm over {self.num_features} channels does not fit {list(input.static_shape)}")
        part = self._part()
        y, now, spread, count = _SyncNorm.apply(input, self.weight, self.bias, self.eps, self.process_group)
        if mean is not None and var is not None:
            share = part if isinstance(part, Tensor) else scalar(part, mean.array.dtype)
            with switch_mode(grad=False):
                unbiased = spread * (count / (count - 1))
                for running, new in ((mean, now), (var, unbiased)):
                    step = ops.Mul(ops.Sub(cast(new, running.array.dtype), running), share)
                    running.assign(ops.Add(running, step), "SyncBatchNorm.running")
        self._count()
        return y

    def explain(self, error: OxError, *args: Any) -> None:
        shape = args[0].static_shape
        if self.weight is not None and explain_types(error, args[0], self.weight):
            return
        if len(shape) > 1 and shape[1] != self.num_features:
            error.expected, error.got = f"input [batch, {self.num_features}, ...]", f"input {list(shape)}"
            error.hint = f"nn.SyncBatchNorm({shape[1]}), or check what comes before it"

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """`module` with every BatchNorm in it replaced, parameters and statistics kept; the module itself where it is
        one. `torch.nn.SyncBatchNorm.convert_sync_batchnorm`."""
        made = module
        if isinstance(module, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
            made = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            made.weight, made.bias = module.weight, module.bias
            for name, held in module._buffers.items():
                made._buffers[name] = held
            made.training = module.training
        for name, child in module.named_children():
            replaced = cls.convert_sync_batchnorm(child, process_group)
            if replaced is not child:
                made.add_module(name, replaced)
        return made


class _SyncNorm(Function):
    """y, mean, biased variance and count of all ranks' values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, group: Any) -> Any:
        axes, channels = axes_tensor([0, *range(2, x.array.ndim)]), x.static_shape[1]
        wide = cast(x, computed_type(x.array.dtype))
        own = x.array.size // max(channels, 1)
        part = np.zeros_like(x.array, dtype=float64, shape=(2 * channels + 1,))
        if own:
            mean = ops.ReduceMean(wide, axes, keepdims=1)
            centered = ops.Sub(wide, mean)
            part[:channels] = mean.array.reshape(-1)
            part[channels:-1] = ops.ReduceSum(ops.Mul(centered, centered), axes, keepdims=0).array
            part[-1] = own
        parts = np.zeros_like(part, shape=(dist.get_world_size(group), *part.shape))
        dist.all_gather_into_tensor(make_tensor(parts), make_tensor(part), group=group)
        means, spreads, counts = parts[:, :channels], parts[:, channels:-1], parts[:, -1:]
        count = float(counts.sum())
        if count <= 1:
            raise ShapeError(
                "batch normalization needs more than one value a channel while training",
                got=f"{int(count)} over all ranks, {own} of them here",
                hint="a larger batch, or model.eval()",
            )
        # each rank's sum of squares is about its own mean
        together = (means * counts).sum(0) / count
        variance = (spreads + counts * (means - together) ** 2).sum(0) / count
        kind = computed_type(x.array.dtype)
        mean, var = make_tensor(together.astype(kind)), make_tensor(variance.astype(kind))
        inverse = make_tensor((1 / np.sqrt(variance + eps)).astype(kind))
        scale = make_tensor(np.ones_like(mean.array)) if weight is None else cast(weight.detach(), kind)
        shift = make_tensor(np.zeros_like(mean.array)) if bias is None else cast(bias.detach(), kind)
        y = ops.BatchNormalization(wide, scale, shift, mean, var, epsilon=eps)
        ctx.save_for_backward(x, scale, mean, inverse)
        ctx.group, ctx.count, ctx.axes = group, count, axes
        ctx.kinds = [None if p is None else p.array.dtype for p in (weight, bias)]
        ctx.mark_non_differentiable(mean, var)
        return cast(y, x.array.dtype), mean, var, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, *_: Any) -> Any:
        x, scale, mean, inverse = ctx.saved_tensors
        kind, rank, channels = mean.array.dtype, x.array.ndim, x.static_shape[1]
        cotangent = cast(g, kind)
        centered = ops.Sub(cast(x, kind), column_of(mean, rank, kind))
        total = ops.ReduceSum(cotangent, ctx.axes, keepdims=0)
        weighted = ops.ReduceSum(ops.Mul(cotangent, centered), ctx.axes, keepdims=0)
        both = make_tensor(np.concatenate([total.array, weighted.array]))
        dist.all_reduce(both, group=ctx.group)
        means = make_tensor(both.array / kind.type(ctx.count))
        taken = ops.Mul(ops.Mul(means[channels:], inverse), inverse)
        slope = ops.Sub(cotangent, column_of(means[:channels], rank, kind))
        slope = ops.Sub(slope, ops.Mul(centered, column_of(taken, rank, kind)))
        to_x = cast(ops.Mul(slope, column_of(ops.Mul(inverse, scale), rank, kind)), x.array.dtype)
        to_weight, to_bias = (
            None if own is None else cast(value, own)
            for own, value in zip(ctx.kinds, (ops.Mul(weighted, inverse), total), strict=True)
        )
        return to_x, to_weight, to_bias, None, None


__all__ = ["SyncBatchNorm"]
