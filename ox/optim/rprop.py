"""Resilient propagation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.errors import ArgumentError
from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group
from ox.optim.optimizer import options


class Rprop(Formula):
    """Every element has its own step size, which grows while its gradient keeps its sign, and shrinks (without a step)
    when that changes (Riedmiller and Braun, 1993); for whole data sets, not batches. `torch.optim.Rprop`.

    Args:
        lr: the first step.
        etas: by what it shrinks and grows.
        step_sizes: its least and its most.
        maximize: climb instead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        how = options(foreach=foreach, capturable=capturable, differentiable=differentiable)
        if not 0 < etas[0] < 1 < etas[1]:
            raise ArgumentError("etas are a factor below 1 and one above", got=str(etas))
        settings = {"lr": lr, "etas": etas, "step_sizes": step_sizes}
        super().__init__(params, {**settings, "maximize": maximize, **how})

    def _moments(self, group: Group) -> dict[str, float]:
        return {"prev": 0.0, "step_size": group["lr"]}

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        turn = g * s["prev"]
        none = 0 * s["step_size"]
        factor = xp.where(turn > 0, none + n.eta2, xp.where(turn < 0, none + n.eta1, none + 1))
        size = xp.minimum(xp.maximum(s["step_size"] * factor, none + n.step_size1), none + n.step_size2)
        g = xp.where(turn < 0, none, g)
        s["step_size"], s["prev"] = size, g
        return p - xp.sign(g) * size
