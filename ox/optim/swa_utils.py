"""Averages of weights over training: equal (Izmailov et al., 2018) or exponential. `torch.optim.swa_utils`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from math import cos, pi
from typing import Any

from ox.core.mode import MODE, switch_mode
from ox.dtypes import is_floating
from ox.errors import ArgumentError
from ox.functions import ones_like, zeros_like
from ox.nn.base.module import Module
from ox.nn.parameter import Buffer
from ox.optim.lr_scheduler.base import LRScheduler, check_entries, per_group
from ox.optim.optimizer import Optimizer
from ox.tensors.tensor import Tensor

AvgFn = Callable[[Tensor, Tensor, Tensor], Tensor]
MultiAvgFn = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], None]


def get_ema_avg_fn(decay: float = 0.999) -> AvgFn:
    """decay·average + (1 - decay)·parameter, of one tensor."""
    if not 0 <= decay <= 1:
        raise ArgumentError("decay must be in [0, 1]", got=str(decay))

    def average(averaged: Tensor, current: Tensor, count: Tensor) -> Tensor:
        return averaged * decay + current * (1 - decay)

    return average


def get_swa_avg_fn() -> AvgFn:
    """The mean of all so far, of one tensor."""

    def average(averaged: Tensor, current: Tensor, count: Tensor) -> Tensor:
        return averaged + (current - averaged) / (count + 1)

    return average


def _of_lists(average: AvgFn) -> MultiAvgFn:
    def update(averaged: Sequence[Tensor], current: Sequence[Tensor], count: Tensor) -> None:
        with switch_mode(grad=False):
            for a, b in zip(averaged, current, strict=True):
                a.copy_(average(a, b, count))

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAvgFn:
    """`get_ema_avg_fn` over lists of tensors, in place."""
    return _of_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> MultiAvgFn:
    """`get_swa_avg_fn` over lists of tensors, in place."""
    return _of_lists(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model whose parameters are averages: `update_parameters(model)` after a step, or an epoch.
    `torch.optim.swa_utils.AveragedModel`.

    Args:
        device: where the averages live.
        avg_fn: (average, parameter, how many so far) to the next average; None is the mean.
        multi_avg_fn: the same in place, on lists.
        use_buffers: average buffers too; else they follow the model's.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: str | None = None,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: MultiAvgFn | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("AveragedModel takes avg_fn or multi_avg_fn", got="both")
        self.module = deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.n_averaged = Buffer(0)
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @property
    def _has_averages(self) -> bool:
        return bool(self.n_averaged.array.item())

    def update_parameters(self, model: Module) -> None:
        """Take the model's present parameters into the averages; the first are copied."""
        own, theirs = list(self.module.parameters()), list(model.parameters())
        held, present = ([b for _, b in each._dense_buffers()] for each in (self.module, model))
        buffers = list(zip(held, present, strict=True))
        if self.use_buffers:
            own, theirs = list(chain(own, held)), list(chain(theirs, present))  # type: ignore[arg-type]
        pairs = [(a.detach(), b.detach().to(a.device)) for a, b in zip(own, theirs, strict=True)]
        recording = MODE.get().recording
        if recording is not None:
            recording.depends_on(self, ("_has_averages",))
        with switch_mode(grad=False):
            for a, b in pairs:
                if not self._has_averages or not is_floating(a.array.dtype):
                    a.copy_(b)
            pairs = [(a, b) for a, b in pairs if is_floating(a.array.dtype)] if self._has_averages else []
            if pairs:
                update = self.multi_avg_fn or _of_lists(self.avg_fn or get_swa_avg_fn())
                update([a for a, _ in pairs], [b for _, b in pairs], self.n_averaged)
            if not self.use_buffers:
                for a, b in buffers:
                    a.copy_(b.to(a.device))
            self.n_averaged.copy_(self.n_averaged + 1)


def update_bn(loader: Iterable[Any], model: Module, device: str | None = None) -> None:
    """Compute the statistics of batch normalizations anew from one pass over `loader`, whose items are inputs or start
    with them. `torch.optim.swa_utils.update_bn`."""
    layers = [
        m for m in model.modules() if isinstance(m._buffers.get("running_mean"), Tensor) and hasattr(m, "momentum")
    ]
    if not layers:
        return
    momenta, training = [m.momentum for m in layers], model.training
    with switch_mode(grad=False):
        for m in layers:
            m.running_mean.copy_(zeros_like(m.running_mean))
            m.running_var.copy_(ones_like(m.running_var))
            m.num_batches_tracked.copy_(zeros_like(m.num_batches_tracked))
            m.momentum = None  # the mean over all batches
        model.train()
        try:
            for item in loader:
                x = item[0] if isinstance(item, list | tuple) else item
                model(x if device is None else x.to(device))
        finally:
            for m, momentum in zip(layers, momenta, strict=True):
                m.momentum = momentum
            model.train(training)


class SWALR(LRScheduler):
    """From the rate as it is to `swa_lr` in `anneal_epochs` steps, and there it stays. `torch.optim.swa_utils.SWALR`.

    Args:
        swa_lr: one for all groups, or one a group.
        anneal_strategy: "cos" or "linear".
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear") or not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError(
                "invalid option of SWALR",
                expected="anneal_epochs of 0 or more, anneal_strategy 'cos' or 'linear'",
                got=f"{anneal_epochs}, {anneal_strategy!r}",
            )
        for group, lr in zip(optimizer.param_groups, per_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = lr
        self.anneal_epochs, self.anneal_strategy, self._steps = anneal_epochs, anneal_strategy, -1
        super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self.anneal_strategy == "linear" else (1 - cos(pi * t)) / 2

    def get_lr(self) -> list[float]:
        self._steps += 1
        step = max(1, self._steps) if self.anneal_epochs == 0 else self._steps
        before, now = self._part(step - 1), self._part(step)
        rates = []
        check_entries("SWALR", self.optimizer.param_groups, ["swa_lr"])
        for group in self.optimizer.param_groups:
            lr, goal = group["lr"], group["swa_lr"]
            start = goal if before == 1 else (lr - before * goal) / (1 - before)  # what the rate was before all this
            rates.append(goal * now + start * (1 - now))
        return rates
