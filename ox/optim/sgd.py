"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.core import multi_tensor
from ox.core.mode import cannot_record
from ox.core.multi_tensor import count_kernel_write
from ox.errors import ArgumentError, GradientError, RecordError
from ox.optim import device_update, kernels
from ox.optim.formula import Formula, Numbers
from ox.optim.group import Group
from ox.optim.optimizer import options
from ox.optim.sparse_adam import add_rows
from ox.sparse.tensor import SparseTensor
from ox.tensors.tensor import Tensor


class SGD(Formula):
    """d = g + weight_decay·p;  b = momentum·b + (1 - dampening)·d (d itself at first);  p -= lr·b, or with Nesterov
    lr·(d + momentum·b). `torch.optim.SGD`.

    Args:
        maximize: climb instead.
    """

    _counts = False

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

    def _moments(self, group: Group) -> dict[str, float]:
        # zeros: with them the first step gives b = d, but for dampening, which _first mends
        return {"momentum_buffer": 0.0} if group["momentum"] else {}

    def _fast(self, params: list[Tensor], group: Group) -> None:
        lr = -group["lr"] if group["maximize"] else group["lr"]
        momentum = group["momentum"]
        tables: dict[float, multi_tensor.TensorTable] = {}
        compiled = multi_tensor.available()
        for p in params:
            buffers = [self._buffer(p, group)] if momentum else []
            keep = 1.0 if buffers and self._first(buffers[0], group) else 1.0 - group["dampening"]
            line: list[Any] = [p, p.grad, *buffers, *[None] * (1 - len(buffers))]
            table = tables.setdefault(keep, multi_tensor.TensorTable()) if compiled else None
            if table is None or not table.add(line):
                tensors = line[: 2 + len(buffers)]
                kernels.in_pieces(kernels.sgd, tensors, 2, lr, group["weight_decay"], momentum, keep, group["nesterov"])
            for tensor in (p, *buffers):
                count_kernel_write(tensor, "SGD.step")
        sign = -1.0 if group["maximize"] else 1.0
        for keep, table in tables.items():
            table.run("ox_sgd", group["lr"], group["weight_decay"], momentum, keep, sign, int(group["nesterov"]))

    def _on_device(self, params: list[Tensor], group: Group) -> bool:
        if not (group["momentum"] and group["dampening"]):
            return super()._on_device(params, group)
        first = [p for p in params if self._first(self._buffer(p, group), group)]
        rest = [p for p in params if not any(p is each for each in first)]
        undamped = {**group, "dampening": 0.0}
        return (not first or device_update.update(self, first, group, undamped)) and (
            not rest or device_update.update(self, rest, group, group)
        )

    def _buffer(self, p: Tensor, group: Group) -> Tensor:
        buffer: Tensor | None = self.state[p].get("momentum_buffer")
        return self._state_of(p, group)["momentum_buffer"] if buffer is None else buffer

    def _first(self, buffer: Tensor, group: Group) -> bool:
        """Whether this buffer was never written, which only matters with dampening."""
        return bool(group["dampening"]) and buffer.version == 0 and not buffer.array.any()

    def _sparse(self, p: Tensor, grad: SparseTensor, state: dict[str, Any], group: Group) -> None:
        if group["momentum"] or group["weight_decay"]:
            raise GradientError(
                "SGD takes sparse gradients without momentum and weight decay",
                hint="SparseAdam, or an Embedding with sparse=False",
            )
        rate = group["lr"] if group["maximize"] else -group["lr"]
        add_rows(p, grad, grad.values() * rate, "SGD.step")

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        if group["momentum"] and self._first(self._buffer(p, group), group):
            cannot_record(
                RecordError(
                    "the first step of SGD with dampening differs from the others",
                    hint="take one step before recording, or dampening=0",
                ),
                again=True,
            )
            self._fast([p], group)
            return
        super()._update(p, grad, state, group)

    def _rule(self, xp: Any, p: Any, g: Any, s: dict[str, Any], n: Numbers, group: Group) -> Any:
        if group["momentum"]:
            added = g * (1 - n.dampening) if group["dampening"] else g
            b = s["momentum_buffer"] = s["momentum_buffer"] * n.momentum + added
            g = g + b * n.momentum if group["nesterov"] else b
        return p - g * n.lr
