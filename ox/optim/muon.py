"""Muon."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

from ox import functions as F
from ox import ops
from ox.core.operator import make_tensor
from ox.core.promotion import cast
from ox.errors import ArgumentError
from ox.optim.group import Group
from ox.optim.optimizer import Optimizer, narrow_or_same
from ox.tensors.tensor import Tensor


class Muon(Optimizer):
    """For the matrices of hidden layers: momentum whose singular values are all brought near 1 (Jordan et al., 2024).
    `torch.optim.Muon`, which does the products in bfloat16; ox does them in float32.

    Args:
        params: matrices only; embeddings, heads and vectors are for another optimizer.
        weight_decay: shrinks the parameter itself.
        nesterov: look ahead along the momentum.
        ns_coefficients: of the polynomial that is run `ns_steps` times.
        eps: the least norm that is divided by.
        adjust_lr_fn: "original" (None) scales the rate by sqrt(max(1, rows / columns)), "match_rms_adamw" by
            0.2·sqrt(max(rows, columns)), so that AdamW's rates fit.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ArgumentError(
                f"Muon has no adjust_lr_fn {adjust_lr_fn!r}", expected="'original' or 'match_rms_adamw'"
            )
        if len(ns_coefficients) != 3 or not 0 <= ns_steps < 100:
            raise ArgumentError(
                "Muon runs a polynomial of three coefficients fewer than 100 times",
                got=f"{ns_coefficients}, {ns_steps} times",
            )
        settings = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov}
        series = {"ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, {**settings, **series})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        wrong = [list(p.static_shape) for p in self.param_groups[-1]["params"] if p.array.ndim != 2]
        if wrong:
            self.param_groups.pop()
            raise ArgumentError(
                "Muon takes matrices only",
                got=f"shapes {wrong[:4]}",
                hint="another optimizer, such as AdamW, for the others",
            )

    def _initial(self, p: Tensor, group: Group) -> dict[str, Any]:
        return {"momentum_buffer": make_tensor(p.array * 0)}

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        kind = narrow_or_same(p)
        value, g = cast(p, kind), cast(grad, kind)
        momentum, lr = group.tensor("momentum"), group.tensor("lr")
        b = cast(state["momentum_buffer"], kind)
        b = b + (g - b) * (1 - momentum)
        state["momentum_buffer"].assign(b, "Muon.step")
        update = _orthogonal(g + (b - g) * momentum if group["nesterov"] else b, group)
        rows, columns = p.static_shape
        ratio = 0.2 * sqrt(max(rows, columns)) if group["adjust_lr_fn"] == "match_rms_adamw" else 0.0
        ratio = ratio or sqrt(max(1, rows / columns))
        value = value * (1 - lr * group.tensor("weight_decay"))
        p.assign(value - update * (lr * ratio), "Muon.step")


def _orthogonal(x: Tensor, group: Group) -> Tensor:
    """About U·Vᵀ of x = U·S·Vᵀ, by Newton and Schulz's iteration: each singular value ends between 0.5 and 1.5."""
    a, b, c = (group.tensor(f"ns_coefficient{i}") for i in (1, 2, 3))
    tall = x.static_shape[0] > x.static_shape[1]
    x = ops.Transpose(x, perm=[1, 0]) if tall else x
    norm = F.sqrt(ops.ReduceSum(x * x, keepdims=0))
    x = x / F.maximum(norm, group.cast("eps", x.array.dtype))
    for _ in range(group["ns_steps"]):
        gram = ops.MatMul(x, ops.Transpose(x, perm=[1, 0]))
        x = x * a + ops.MatMul(gram * b + ops.MatMul(gram, gram) * c, x)
    return ops.Transpose(x, perm=[1, 0]) if tall else x
