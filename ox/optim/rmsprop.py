"""RMSprop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group
from ox.optim.optimizer import options


class RMSprop(Formula):
    """v = αv + (1-α)g²;  p -= lr·g/(sqrt(v) + eps) (Hinton, 2012). `torch.optim.RMSprop`.

    Args:
        momentum: gather the quotients in a buffer of this momentum.
        centered: divide by the standard deviation, v less the squared mean of g.
        weight_decay: this part of the parameter joins the gradient.
        maximize: climb instead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        how = options(capturable=capturable, foreach=foreach, differentiable=differentiable)
        settings = {"lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered}
        super().__init__(params, {**settings, "weight_decay": weight_decay, "maximize": maximize, **how})

    def _moments(self, group: Group) -> dict[str, float]:
        names = ["square_avg", *(["momentum_buffer"] if group["momentum"] else [])]
        return dict.fromkeys([*names, *(["grad_avg"] if group["centered"] else [])], 0.0)

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        v = s["square_avg"] = s["square_avg"] * n.alpha + g * g * (1 - n.alpha)
        if group["centered"]:
            mean = s["grad_avg"] = s["grad_avg"] + (g - s["grad_avg"]) * (1 - n.alpha)
            v = v - mean * mean
        d = g / (xp.sqrt(v) + n.eps)
        if group["momentum"]:
            d = s["momentum_buffer"] = s["momentum_buffer"] * n.momentum + d
        return p - d * n.lr
