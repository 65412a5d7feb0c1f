"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

import numpy as np

from ox import ops
from ox.dtypes import float64, onnx_type
from ox.operands import cast, scalar
from ox.ops.operator import make_tensor
from ox.optim import kernels
from ox.optim.group import Group
from ox.optim.optimizer import Optimizer, narrow_or_same, options, written
from ox.tensor import Tensor


class Adam(Optimizer):
    """m = β₁m + (1-β₁)g;  v = β₂v + (1-β₂)g²;  p -= lr·m̂/(sqrt(v̂) + eps), m̂ and v̂ corrected for their start at 0
    (Kingma and Ba, 2015). `torch.optim.Adam`.

    Args:
        weight_decay: this part of the parameter joins the gradient.
        amsgrad: divide by the largest v̂ so far (Reddi et al., 2018).
        maximize: climb instead.
        decoupled_weight_decay: shrink the parameter itself, as in AdamW.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        how = options(foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused)
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        decoupled = {"decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, {**settings, "maximize": maximize, **how, **decoupled})

    def _initial(self, p: Tensor, group: Group) -> dict[str, Any]:
        names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
        return {
            "step": make_tensor(np.zeros((), np.float32)),
            **{name: make_tensor(np.zeros_like(p.array)) for name in names},
        }

    def _fast(self, params: list[Tensor], group: Group) -> None:
        name = f"{type(self).__name__}.step"
        lr, decay, (beta1, beta2) = group["lr"], group["weight_decay"], group["betas"]
        keep, joined = (1 - lr * decay, 0.0) if group["decoupled_weight_decay"] else (1.0, decay)
        for p in params:
            state = self.state[p]
            state["step"].array += 1
            written(state["step"], name)
            step = float(state["step"].array)
            root = sqrt(1 - beta2**step)
            moments = [m for key, m in state.items() if key != "step"]
            tensors: Any = [p, p.grad, *moments]
            numbers = (lr * root / (1 - beta1**step), keep, joined, beta1, beta2, group["eps"] * root)
            kernels.in_pieces(kernels.adam, tensors, 2, *numbers, group["maximize"])
            for tensor in (p, *moments):
                written(tensor, name)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        name = f"{type(self).__name__}.step"
        kind = narrow_or_same(p)
        value, g = cast(p, kind), cast(grad, kind)
        one = scalar(1, float64)
        step = state["step"].assign(ops.Add(state["step"], scalar(1, state["step"].array.dtype)), name)
        # the corrections in float64: 1 - 0.999 in float32 is off by one part in 10,000
        count = ops.Cast(step, to=onnx_type(float64))
        root = ops.Sqrt(ops.Sub(one, ops.Pow(group.tensor("beta2"), count)))
        rate = ops.Div(ops.Mul(group.tensor("lr"), root), ops.Sub(one, ops.Pow(group.tensor("beta1"), count)))
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            kept = ops.Sub(one, ops.Mul(group.tensor("lr"), group.tensor("weight_decay")))
            value = ops.Mul(value, cast(kept, kind))
        if group["maximize"]:
            g = ops.Neg(g)
        if group["weight_decay"] and not group["decoupled_weight_decay"]:
            g = ops.Add(g, ops.Mul(value, group.cast("weight_decay", kind)))
        m, v = cast(state["exp_avg"], kind), cast(state["exp_avg_sq"], kind)
        m = ops.Add(m, ops.Mul(ops.Sub(g, m), cast(ops.Sub(one, group.tensor("beta1")), kind)))
        v = ops.Add(
            ops.Mul(v, group.cast("beta2", kind)),
            ops.Mul(ops.Mul(g, g), cast(ops.Sub(one, group.tensor("beta2")), kind)),
        )
        state["exp_avg"].assign(m, name)
        state["exp_avg_sq"].assign(v, name)
        if group["amsgrad"]:
            v = ops.Max(cast(state["max_exp_avg_sq"], kind), v)
            state["max_exp_avg_sq"].assign(v, name)
        below = ops.Add(ops.Sqrt(v), cast(ops.Mul(group.tensor("eps"), root), kind))
        p.assign(ops.Sub(value, ops.Mul(ops.Div(m, below), cast(rate, kind))), name)


class AdamW(Adam):
    """Adam whose weight decay acts on the parameter itself: p *= 1 - lr·weight_decay first (Loshchilov and Hutter,
    2019). `torch.optim.AdamW`. Arguments as in `Adam`."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
