"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

from ox.core import multi_tensor
from ox.core.multi_tensor import count_kernel_write
from ox.optim import kernels
from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group
from ox.optim.optimizer import options
from ox.tensors.tensor import Tensor


class Adam(Formula):
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

    def _moments(self, group: Group) -> dict[str, float]:
        return dict.fromkeys(["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])], 0.0)

    def _derive(self, xp: Any, n: Numbers, step: Any) -> None:
        root = xp.sqrt(1 - n.beta2**step)
        n.rate, n.floor = n.lr * root / (1 - n.beta1**step), n.eps * root

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        m = s["exp_avg"] = s["exp_avg"] + (g - s["exp_avg"]) * (1 - n.beta1)
        v = s["exp_avg_sq"] = s["exp_avg_sq"] * n.beta2 + g * g * (1 - n.beta2)
        if group["amsgrad"]:
            v = s["max_exp_avg_sq"] = xp.maximum(s["max_exp_avg_sq"], v)
        return p - m / (xp.sqrt(v) + n.floor) * n.rate

    def _fast(self, params: list[Tensor], group: Group) -> None:
        name = f"{type(self).__name__}.step"
        lr, decay, (beta1, beta2) = group["lr"], group["weight_decay"], group["betas"]
        keep, joined = (1 - lr * decay, 0.0) if group["decoupled_weight_decay"] else (1.0, decay)
        tables: dict[tuple[float, ...], multi_tensor.TensorTable] = {}
        compiled = multi_tensor.available()
        for p in params:
            state = self._state_of(p, group) if group["amsgrad"] else self.state[p]
            state["step"].array += 1
            count_kernel_write(state["step"], name)
            step = float(state["step"].array)
            root = sqrt(1 - beta2**step)
            moments = [m for key, m in state.items() if key != "step"]
            numbers: tuple[float, ...] = (
                lr * root / (1 - beta1**step),
                keep,
                joined,
                beta1,
                beta2,
                group["eps"] * root,
            )
            line: list[Any] = [p, p.grad, *moments, *[None] * (3 - len(moments))]
            table = tables.setdefault(numbers, multi_tensor.TensorTable()) if compiled else None
            if table is None or not table.add(line):
                kernels.in_pieces(kernels.adam, line[: 2 + len(moments)], 2, *numbers, group["maximize"])
            for tensor in (p, *moments):
                count_kernel_write(tensor, name)
        for (rate, keep, joined, beta1, beta2, epsilon), table in tables.items():
            sign = -1.0 if group["maximize"] else 1.0
            table.run("ox_adam", rate, keep, joined, 1 - beta1, beta2, 1 - beta2, epsilon, sign)


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
