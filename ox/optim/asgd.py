"""Averaged stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group
from ox.optim.optimizer import options


class ASGD(Formula):
    """p = (1 - λη)p - η·g, with η = lr/(1 + λ·lr·t)^α, and beside it the mean of the parameters from step t0 on, in the
    state as `ax` (Polyak and Juditsky, 1992). `torch.optim.ASGD`.

    Args:
        lambd: λ, how strongly the parameter is drawn to 0.
        alpha: the power of η.
        t0: the step at which averaging starts.
        weight_decay: this part of the parameter joins the gradient.
        maximize: climb instead.
    """

    _scalars = frozenset({"step", "eta", "mu"})

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        how = options(foreach=foreach, differentiable=differentiable, capturable=capturable)
        settings = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize, **how})

    def _moments(self, group: Group) -> dict[str, float]:
        return {"ax": 0.0}

    def _starts(self, group: Group) -> dict[str, float]:
        return {"eta": group["lr"], "mu": 1.0}

    def _derive(self, xp: Any, n: Numbers, step: Any) -> None:
        n.rate, n.part = n.eta, n.mu  # this step's; what the state holds next is the next one's
        n.eta = n.lr / (1 + n.lambd * n.lr * step) ** n.alpha
        n.mu = 1 / xp.maximum(step - n.t0, 1 + 0 * step)

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        p = p * (1 - n.lambd * n.rate) - g * n.rate
        s["ax"] = s["ax"] * (1 - n.part) + p * n.part
        return p
