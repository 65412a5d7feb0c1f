"""NAdam."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group
from ox.optim.optimizer import options


class NAdam(Formula):
    """Adam with Nesterov's momentum, whose β₁ grows with the steps to its value (Dozat, 2016). `torch.optim.NAdam`.

    Args:
        momentum_decay: how fast it grows: μ = β₁(1 - 0.96^(t·momentum_decay)/2).
        weight_decay: this part of the parameter joins the gradient.
        decoupled_weight_decay: or shrinks the parameter itself, as in AdamW.
        maximize: climb instead.
    """

    _scalars = frozenset({"step", "mu_product"})

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        how = options(foreach=foreach, capturable=capturable, differentiable=differentiable)
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        further = {"momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, {**settings, **further, "maximize": maximize, **how})

    def _moments(self, group: Group) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    def _starts(self, group: Group) -> dict[str, float]:
        return {"mu_product": 1.0}

    def _derive(self, xp: Any, n: Numbers, step: Any) -> None:
        mu = n.beta1 * (1 - 0.96 ** (step * n.momentum_decay) * 0.5)
        after = n.beta1 * (1 - 0.96 ** ((step + 1) * n.momentum_decay) * 0.5)
        n.mu_product = n.mu_product * mu
        n.of_g = n.lr * (1 - mu) / (1 - n.mu_product)
        n.of_m = n.lr * after / (1 - n.mu_product * after)
        n.correction = 1 - n.beta2**step

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        m = s["exp_avg"] = s["exp_avg"] + (g - s["exp_avg"]) * (1 - n.beta1)
        v = s["exp_avg_sq"] = s["exp_avg_sq"] * n.beta2 + g * g * (1 - n.beta2)
        return p - (g * n.of_g + m * n.of_m) / (xp.sqrt(v / n.correction) + n.eps)
