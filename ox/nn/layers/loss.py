"""Losses that compare values one by one, as modules. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.functional.arguments import one_of
from ox.nn.functional.reduction import REDUCTIONS, legacy
from ox.tensors.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "GaussianNLLLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "PoissonNLLLoss",
    "SmoothL1Loss", "SoftMarginLoss",
]  # fmt: skip


class Loss(Module):
    """The base of the losses. `size_average` and `reduce` are deprecated forms of `reduction`."""

    reductions: tuple[str, ...] = REDUCTIONS

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = one_of(legacy(size_average, reduce, reduction), "reduction", self.reductions)


class WeightedLoss(Loss):
    """A loss with a weight for each class or element, a buffer."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class MSELoss(Loss):
    """Squared difference of equal shapes. `torch.nn.MSELoss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(Loss):
    """Absolute difference of equal shapes. `torch.nn.L1Loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(Loss):
    """Squared difference below `beta`, absolute beyond. `torch.nn.SmoothL1Loss`."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(Loss):
    """Squared difference up to `delta`, `delta` times the absolute one beyond. `torch.nn.HuberLoss`."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, self.reduction, self.delta)


class BCELoss(WeightedLoss):
    """Binary cross entropy of probabilities, of equal shapes. `torch.nn.BCELoss`.

    Args:
        weight: factor of each element, broadcast.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(WeightedLoss):
    """Binary cross entropy of logits against probabilities, of equal shapes. `torch.nn.BCEWithLogitsLoss`.

    Args:
        weight: factor of each element, broadcast.
        pos_weight: factor of the positive part, broadcast.
    """

    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class KLDivLoss(Loss):
    """The Kullback-Leibler divergence of log-probabilities from probabilities. `torch.nn.KLDivLoss`.

    Args:
        reduction: also "batchmean", which is the divergence itself.
        log_target: whether targets are log-probabilities too.
    """

    reductions = ("batchmean", *REDUCTIONS)

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(Loss):
    """Minus the log-likelihood of counts under Poisson's distribution. `torch.nn.PoissonNLLLoss`."""

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(log_input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(Loss):
    """Minus the log-likelihood under normal distributions of given means and variances. `torch.nn.GaussianNLLLoss`."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class SoftMarginLoss(Loss):
    """log(1 + exp(-target·input)). `torch.nn.SoftMarginLoss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)
