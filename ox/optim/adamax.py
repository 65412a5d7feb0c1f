"""Adamax."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group
from ox.optim.optimizer import options


class Adamax(Formula):
    """m = β₁m + (1-β₁)g;  u = max(β₂u, |g| + eps);  p -= lr/(1 - β₁ᵗ)·m/u (Kingma and Ba, 2015): Adam with the largest
    gradient in place of the mean square. `torch.optim.Adamax`.

    Args:
        weight_decay: this part of the parameter joins the gradient.
        maximize: climb instead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        how = options(foreach=foreach, differentiable=differentiable, capturable=capturable)
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize, **how})

    def _moments(self, group: Group) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_inf": 0.0}

    def _derive(self, xp: Any, n: Numbers, step: Any) -> None:
        n.rate = n.lr / (1 - n.beta1**step)

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        m = s["exp_avg"] = s["exp_avg"] + (g - s["exp_avg"]) * (1 - n.beta1)
        u = s["exp_inf"] = xp.maximum(s["exp_inf"] * n.beta2, xp.abs(g) + n.eps)
        return p - m / u * n.rate
