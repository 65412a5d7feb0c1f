"""Up and down again and again (Smith, 2017)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor

from ox.errors import ArgumentError
from ox.optim.lr_scheduler.base import LRScheduler, checked, per_group, set_momentum
from ox.optim.optimizer import Optimizer


class CyclicLR(LRScheduler):
    """From `base_lr` up to `max_lr` and down, momentum the other way. `torch.optim.lr_scheduler.CyclicLR`; step it
    after every batch.

    Args:
        step_size_up: steps up; step_size_down: down (None: as many).
        mode: "triangular"; "triangular2", half as high each cycle; "exp_range", gamma^step as high.
        scale_fn: the height as a function of the cycle or the step, by `scale_mode`: "cycle" or "iterations".
        cycle_momentum: from `max_momentum` down to `base_momentum` and up.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        groups = checked(optimizer).param_groups
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ArgumentError(f"CyclicLR has no mode {mode!r}", expected="triangular, triangular2 or exp_range")
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self._scale_fn = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn else ("iterations" if mode == "exp_range" else "cycle")
        self.cycle_momentum = cycle_momentum
        lows = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, lr in zip(groups, lows, strict=True):
                group["lr"] = lr
        if cycle_momentum:
            self.base_momentums = per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = per_group("max_momentum", optimizer, max_momentum)
            for group, low, high in zip(groups, self.base_momentums, self.max_momentums, strict=True):
                if last_epoch == -1:
                    set_momentum(group, high, "CyclicLR")
                    group.update({"base_momentum": low, "max_momentum": high})
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    def scale_fn(self, x: float) -> float:
        """The height of a cycle, or at a step."""
        if self._scale_fn is not None:
            return self._scale_fn(x)
        if self.mode == "exp_range":
            return float(self.gamma**x)
        return 1.0 if self.mode == "triangular" else 0.5 ** (x - 1)

    def get_lr(self) -> list[float]:
        cycle = floor(1 + self.last_epoch / self.total_size)
        x = 1 + self.last_epoch / self.total_size - cycle
        part = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        part *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        rates = self._values("base_lrs", "max_lrs")
        if self.cycle_momentum:
            ends = self._values("base_momentums", "max_momentums")
            for group, (low, high) in zip(self.optimizer.param_groups, ends, strict=True):
                set_momentum(group, high - (high - low) * part, "CyclicLR")
        return [low + (high - low) * part for low, high in rates]
