"""Adagrad."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.errors import GradientError
from ox.functions import sqrt
from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group
from ox.optim.optimizer import options
from ox.optim.sparse_adam import add_rows
from ox.sparse.tensor import SparseTensor, at
from ox.tensors.tensor import Tensor


class Adagrad(Formula):
    """s = s + g²;  p -= lr/(1 + (t-1)·lr_decay)·g/(sqrt(s) + eps) (Duchi et al., 2011). `torch.optim.Adagrad`.

    Args:
        initial_accumulator_value: what s starts with.
        weight_decay: this part of the parameter joins the gradient.
        maximize: climb instead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        how = options(foreach=foreach, differentiable=differentiable, fused=fused)
        settings = {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay}
        start = {"initial_accumulator_value": initial_accumulator_value}
        super().__init__(params, {**settings, **start, "maximize": maximize, **how})

    def _sparse(self, p: Tensor, grad: SparseTensor, state: dict[str, Any], group: Group) -> None:
        if group["weight_decay"]:
            raise GradientError("Adagrad takes sparse gradients without weight decay")
        state["step"].array += 1
        g = grad.values()
        add_rows(state["sum"], grad, g * g, "Adagrad.step")
        rate = group["lr"] / (1 + (float(state["step"].array) - 1) * group["lr_decay"])
        change = g / (sqrt(at(state["sum"], grad)) + group["eps"]) * rate
        add_rows(p, grad, change if group["maximize"] else -change, "Adagrad.step")

    def _moments(self, group: Group) -> dict[str, float]:
        return {"sum": group["initial_accumulator_value"]}

    def _derive(self, xp: Any, n: Numbers, step: Any) -> None:
        n.rate = n.lr / ((step - 1) * n.lr_decay + 1)

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        s["sum"] = s["sum"] + g * g
        return p - g / (xp.sqrt(s["sum"]) + n.eps) * n.rate
