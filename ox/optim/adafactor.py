"""Adafactor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ox import functions as F
from ox import ops
from ox.core.constants import scalar
from ox.core.operator import make_tensor
from ox.core.promotion import cast
from ox.dtypes import float64, onnx_type
from ox.errors import ArgumentError
from ox.optim.group import Group
from ox.optim.optimizer import Optimizer, narrow_or_same, options
from ox.tensors.tensor import Tensor


class Adafactor(Optimizer):
    """Divides by the root of a second moment of which, for a matrix, only row and column means are kept; the rate
    follows the size of the parameter (Shazeer and Stern, 2018). `torch.optim.Adafactor`.

    Args:
        lr: the most that the relative rate 1/sqrt(t) may be.
        beta2_decay: the second moment takes t^beta2_decay of each new square.
        eps: the least second moment, squared (None: the type's smallest difference), and the least parameter size.
        d: the root mean square to which an update is clipped.
        weight_decay: shrinks the parameter itself.
        maximize: climb instead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if beta2_decay > 0 or d < 1 or any(e is not None and e < 0 for e in eps):
            raise ArgumentError(
                "invalid option of Adafactor",
                expected="beta2_decay of 0 or less, eps of 0 or more, d of 1 or more",
                got=f"{beta2_decay}, {eps}, {d}",
            )
        settings = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        super().__init__(params, {**settings, **options(foreach=foreach), "maximize": maximize})

    def _shapes(self, p: Tensor) -> dict[str, tuple[int, ...]]:
        shape = p.static_shape
        if len(shape) < 2:
            return {"variance": shape}
        return {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}

    def _shape(self, name: str, p: Tensor) -> tuple[int, ...] | None:
        return {"step": (), **self._shapes(p)}.get(name)

    def _initial(self, p: Tensor, group: Group) -> dict[str, Any]:
        made = {name: make_tensor(np.zeros(s, p.array.dtype)).to(p.device) for name, s in self._shapes(p).items()}
        return {"step": make_tensor(np.zeros((), np.float32)), **made}

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        kind = narrow_or_same(p)
        value, g = cast(p, kind), cast(grad, kind)
        g = ops.Neg(g) if group["maximize"] else g
        least = float(np.finfo(kind).eps) if group["eps"][0] is None else group.tensor("eps1")
        step = state["step"].assign(state["step"] + 1, "Adafactor.step")
        count = ops.Cast(step, to=onnx_type(float64))
        part = F.pow(count, group.tensor("beta2_decay"))
        rate = F.minimum(group.tensor("lr"), 1 / F.sqrt(count))
        rate = rate * F.maximum(group.tensor("eps2"), cast(_size(value), float64))
        if group["weight_decay"]:
            value = value * (1 - group.tensor("lr") * group.tensor("weight_decay"))
        found = {}
        if g.array.ndim > 1:
            for name, dim in (("row_var", -1), ("col_var", -2)):
                mean = ops.ReduceMean(g * g, make_tensor(np.array([dim])), keepdims=1)
                found[name] = _towards(cast(state[name], kind), mean, part)
            rows = found["row_var"]
            mean = F.clamp(ops.ReduceMean(rows, make_tensor(np.array([-2])), keepdims=1), min=least)
            variance = ops.MatMul(rows, found["col_var"]) / mean
        else:
            variance = found["variance"] = _towards(cast(state["variance"], kind), g * g, part)
        for name, tensor in found.items():
            state[name].assign(tensor, "Adafactor.step")
        update = g / F.sqrt(F.clamp(variance, min=least * least))
        below = F.maximum(scalar(1.0, float64), cast(_size(update), float64) / group.tensor("d"))
        p.assign(value - update * (rate / below), "Adafactor.step")


def _size(x: Tensor) -> Tensor:
    """The root mean square."""
    return F.sqrt(ops.ReduceMean(x * x, keepdims=0))


def _towards(old: Tensor, new: Tensor, part: Tensor) -> Tensor:
    return old + (new - old) * part
