"""Losses as modules. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

from ox.errors import ArgumentError
from ox.nn import functional as F
from ox.nn.functional.common import one_of
from ox.nn.functional.loss import REDUCTIONS
from ox.nn.module import Module
from ox.tensor import Tensor


class _Loss(Module):
    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = one_of(reduction, "reduction", REDUCTIONS)


class CrossEntropyLoss(_Loss):
    """Logits [N, C, ...] against classes [N, ...] (integers) or probabilities (floats of the logits' shape).
    `torch.nn.CrossEntropyLoss`.

    Args:
        weight: [C], one factor a class.
        ignore_index: targets of this value count nothing.
        label_smoothing: this part of each target is spread over all classes.
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction=reduction)
        if not 0 <= label_smoothing <= 1:
            raise ArgumentError("label_smoothing is a part", expected="0 to 1", got=str(label_smoothing))
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_Loss):
    """Log-probabilities [N, C, ...] against classes [N, ...]. `torch.nn.NLLLoss`."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class MSELoss(_Loss):
    """Squared difference of equal shapes. `torch.nn.MSELoss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """Absolute difference of equal shapes. `torch.nn.L1Loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of logits against probabilities, of equal shapes. `torch.nn.BCEWithLogitsLoss`.

    Args:
        weight: factor of each element, broadcast.
        pos_weight: factor of the positive part, broadcast.
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )
