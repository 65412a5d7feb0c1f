"""Losses of classes and of sequences of them, as modules: CrossEntropyLoss NLLLoss LinearCrossEntropyLoss CTCLoss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ox.devices import cpu
from ox.dtypes import DType, is_floating
from ox.errors import ArgumentError, ShapeError
from ox.nn import functional as F
from ox.nn.layers.linear import Linear
from ox.nn.layers.loss import Loss, WeightedLoss
from ox.tensors.tensor import Tensor

__all__ = ["CTCLoss", "CrossEntropyLoss", "LinearCrossEntropyLoss", "NLLLoss", "NLLLoss2d"]


def _part(label_smoothing: float) -> float:
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError("label_smoothing must be from 0 to 1", expected="0 to 1", got=str(label_smoothing))
    return label_smoothing


class _ClassLoss(WeightedLoss):
    """A loss that divides by the labels that it counts."""

    ignore_index: Any

    def batch_weight(self, target: Tensor) -> float | None:
        """What the mean over `target` divides by: the number of classes that are not ignored, or the sum of their
        weights; of probabilities, the number of distributions. None without a mean.

        The mean over several batches is the mean of their losses with these weights. `ox.train.Trainer` uses it."""
        if self.reduction != "mean" or not isinstance(target, Tensor):
            return None
        labels = cpu(target.array)
        if is_floating(labels.dtype):
            return float(labels.size // max(1, labels.shape[:2][-1])) if labels.ndim else None
        counted = labels if self.ignore_index is None else labels[labels != self.ignore_index]
        if self.weight is None:
            return float(counted.size)
        return float(cpu(self.weight.array).astype(np.float64).take(counted, mode="clip").sum())


class CrossEntropyLoss(_ClassLoss):
    """Logits [N, C, ...] against classes [N, ...] (integers) or probabilities (floats of the logits' shape).
    `torch.nn.CrossEntropyLoss`.

    Args:
        weight: [C], one factor a class.
        ignore_index: targets of this value count nothing.
        label_smoothing: this part of each target is spread over all classes.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, _part(label_smoothing)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_ClassLoss):
    """Log-probabilities [N, C, ...] against classes [N, ...]. `torch.nn.NLLLoss`; arguments of `CrossEntropyLoss`."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """NLLLoss under an older name. `torch.nn.NLLLoss2d`."""


class LinearCrossEntropyLoss(_ClassLoss):
    """A Linear layer and cross entropy in one: input [N, in_features] against classes [N, *out_features].
    `torch.nn.LinearCrossEntropyLoss`.

    Args:
        out_features: further sizes of the logits [N, num_classes, *out_features].
        options: how PyTorch works in chunks; taken and not followed, the result is the same.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        dtype: DType | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        if weight is not None and weight.static_shape != (num_classes,):
            raise ShapeError(
                "one weight a class", expected=f"weight [{num_classes}]", got=f"weight {list(weight.static_shape)}"
            )
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.ignore_index, self.label_smoothing = ignore_index, _part(label_smoothing)
        self.linear = Linear(in_features, math.prod(out_features, start=num_classes), bias, dtype=dtype)
        self.options = options

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, reduction={self.reduction}, "
            f"ignore_index={self.ignore_index}, label_smoothing={self.label_smoothing}, options={self.options}"
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        sizes, bias = (self.num_classes, *self.out_features), self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*sizes, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(*sizes),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )


class CTCLoss(Loss):
    """Connectionist temporal classification: log_probs [T, N, C] against shorter sequences of classes.
    `torch.nn.CTCLoss`; see `ox.nn.functional.ctc_loss`.

    Args:
        blank: the class of the blank symbol, which is no label.
        zero_infinity: targets that cannot be spelled in their time count nothing.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )
