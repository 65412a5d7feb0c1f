"""Adadelta."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.errors import ArgumentError
from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group
from ox.optim.optimizer import options


class Adadelta(Formula):
    """v = ρv + (1-ρ)g²;  d = sqrt((u + eps)/(v + eps))·g;  u = ρu + (1-ρ)d²;  p -= lr·d (Zeiler, 2012).
    `torch.optim.Adadelta`.

    Args:
        weight_decay: this part of the parameter joins the gradient.
        maximize: climb instead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        how = options(foreach=foreach, capturable=capturable, differentiable=differentiable)
        if not 0 <= rho <= 1:
            raise ArgumentError("rho must be in [0, 1]", got=str(rho))
        settings = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize, **how})

    def _moments(self, group: Group) -> dict[str, float]:
        return {"square_avg": 0.0, "acc_delta": 0.0}

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        v = s["square_avg"] = s["square_avg"] * n.rho + g * g * (1 - n.rho)
        d = xp.sqrt(s["acc_delta"] + n.eps) / xp.sqrt(v + n.eps) * g
        s["acc_delta"] = s["acc_delta"] * n.rho + d * d * (1 - n.rho)
        return p - d * n.lr
