"""RAdam."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group
from ox.optim.optimizer import options


class RAdam(Formula):
    """Adam that divides by the second moment only when it has seen enough gradients to know it, and rectifies the rate
    for how well it does (Liu et al., 2020). `torch.optim.RAdam`.

    Args:
        weight_decay: this part of the parameter joins the gradient.
        decoupled_weight_decay: or shrinks the parameter itself, as in AdamW.
        maximize: climb instead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        how = options(foreach=foreach, capturable=capturable, differentiable=differentiable)
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        decoupled = {"decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, {**settings, **decoupled, "maximize": maximize, **how})

    def _moments(self, group: Group) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    def _derive(self, xp: Any, n: Numbers, step: Any) -> None:
        correction = 1 - n.beta2**step
        most = 2 / (1 - n.beta2) - 1
        length = most - 2 * step * n.beta2**step / correction  # of the average that the second moment amounts to
        n.rate = n.lr / (1 - n.beta1**step)
        n.trusted = xp.where(length > 5, 1 + 0 * length, 0 * length)
        below = (most - 4) * (most - 2) * length * n.trusted + (1 - n.trusted)  # never 0, whether it counts or not
        n.scale = xp.sqrt(xp.maximum((length - 4) * (length - 2) * most / below, 0 * length) * correction)

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        m = s["exp_avg"] = s["exp_avg"] + (g - s["exp_avg"]) * (1 - n.beta1)
        v = s["exp_avg_sq"] = s["exp_avg_sq"] * n.beta2 + g * g * (1 - n.beta2)
        # where the moment is not trusted yet, the scale is a number of no meaning, but finite
        factor = n.scale / (xp.sqrt(v) + n.eps) * n.trusted + (1 - n.trusted)
        return p - m * n.rate * factor
