"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ox import ops
from ox.errors import ArgumentError, GradientError, RecordError
from ox.operands import cast
from ox.ops.explain import place
from ox.ops.operator import make_tensor
from ox.optim import kernels
from ox.optim.group import Group
from ox.optim.optimizer import Optimizer, narrow_or_same, options, written
from ox.optim.sparse_adam import add_rows
from ox.sparse.tensor import SparseTensor
from ox.tensor import Tensor


class SGD(Optimizer):
    """d = g + weight_decay·p;  b = momentum·b + (1 - dampening)·d (d itself at first);  p -= lr·b, or with Nesterov
    lr·(d + momentum·b). `torch.optim.SGD`.

    Args:
        maximize: climb instead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        how = options(foreach=foreach, differentiable=differentiable, fused=fused)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError("Nesterov needs a momentum and no dampening", got=f"{momentum} and {dampening}")
        settings = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "nesterov": nesterov, "maximize": maximize, **how})

    def _initial(self, p: Tensor, group: Group) -> dict[str, Any]:
        # zeros: with them the first step gives b = d, but for dampening, which _first mends
        return {"momentum_buffer": make_tensor(np.zeros_like(p.array))} if group["momentum"] else {}

    def _fast(self, params: list[Tensor], group: Group) -> None:
        lr = -group["lr"] if group["maximize"] else group["lr"]
        momentum = group["momentum"]
        for p in params:
            buffer = self._buffer(p, group)
            tensors: Any = [p, p.grad] if buffer is None else [p, p.grad, buffer]
            keep = 1.0 if buffer is not None and self._first(buffer, group) else 1.0 - group["dampening"]
            kernels.in_pieces(kernels.sgd, tensors, 2, lr, group["weight_decay"], momentum, keep, group["nesterov"])
            written(p, "SGD.step")
            if buffer is not None:
                written(buffer, "SGD.step")

    def _buffer(self, p: Tensor, group: Group) -> Tensor | None:
        if not group["momentum"]:
            return None
        state = self.state[p]
        if state.get("momentum_buffer") is None:
            state.update(self._initial(p, group))
        return state["momentum_buffer"]  # type: ignore[no-any-return]

    def _first(self, buffer: Tensor, group: Group) -> bool:
        """Whether this buffer was never written, which only matters with dampening."""
        return bool(group["dampening"]) and buffer.version == 0 and not buffer.array.any()

    def _sparse(self, p: Tensor, grad: SparseTensor, state: dict[str, Any], group: Group) -> None:
        if group["momentum"] or group["weight_decay"]:
            raise GradientError(
                "SGD takes sparse gradients without momentum and weight decay",
                where=place(),
                hint="SparseAdam, or an Embedding with sparse=False",
            )
        rate = group["lr"] if group["maximize"] else -group["lr"]
        add_rows(p, grad, grad.values() * rate, "SGD.step")

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        kind = narrow_or_same(p)
        value, d = cast(p, kind), cast(grad, kind)
        if group["maximize"]:
            d = ops.Neg(d)
        if group["weight_decay"]:
            d = ops.Add(d, ops.Mul(value, group.cast("weight_decay", kind)))
        buffer = self._buffer(p, group)
        if buffer is not None:
            if self._first(buffer, group):
                raise RecordError(
                    "the first step of SGD with dampening differs from the others",
                    hint="take one step before recording, or dampening=0",
                )
            momentum = group.cast("momentum", kind)
            added = d if not group["dampening"] else ops.Mul(d, 1 - group.cast("dampening", kind))
            b = ops.Add(ops.Mul(cast(buffer, kind), momentum), added)
            buffer.assign(b, "SGD.step")
            d = ops.Add(d, ops.Mul(b, momentum)) if group["nesterov"] else b
        p.assign(ops.Sub(value, ops.Mul(d, group.cast("lr", kind))), "SGD.step")
