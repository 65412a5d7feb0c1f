"""Lion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group


class Lion(Formula):
    """p -= lr·sign(β₁m + (1-β₁)g);  m = β₂m + (1-β₂)g (Chen et al., "Symbolic Discovery of Optimization Algorithms",
    2023). Half of Adam's state; wants a tenth of its rate and ten times its weight decay. PyTorch has none; names and
    defaults are the paper's.

    Args:
        weight_decay: shrinks the parameter itself, as in AdamW.
        maximize: climb instead.
    """

    _counts = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    def _decoupled(self, group: Group) -> bool:
        return True

    def _moments(self, group: Group) -> dict[str, float]:
        return {"exp_avg": 0.0}

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        m = s["exp_avg"]
        s["exp_avg"] = m * n.beta2 + g * (1 - n.beta2)
        return p - xp.sign(m * n.beta1 + g * (1 - n.beta1)) * n.lr
