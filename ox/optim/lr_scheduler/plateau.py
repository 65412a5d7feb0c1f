"""Lower the rate when a number stops getting better."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from ox.errors import ArgumentError
from ox.optim.lr_scheduler.base import LRScheduler, checked, per_group
from ox.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """lr·factor after more than `patience` epochs without progress; `step(metrics)` takes the number to watch.
    `torch.optim.lr_scheduler.ReduceLROnPlateau`.

    Args:
        mode: "min" or "max", which way is better.
        threshold: what counts as progress: a part of the best ("rel") or an amount ("abs"), by `threshold_mode`.
        cooldown: epochs after a reduction that do not count.
        min_lr: the least rate, one for all groups or one a group.
        eps: a smaller change of the rate is not made.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1 or mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ArgumentError(
                "invalid option of ReduceLROnPlateau",
                expected="factor below 1, mode 'min' or 'max', threshold_mode 'rel' or 'abs'",
                got=f"{factor}, {mode!r}, {threshold_mode!r}",
            )
        self.optimizer = checked(optimizer)
        self.mode, self.factor, self.patience, self.cooldown = mode, factor, patience, cooldown
        self.threshold, self.threshold_mode, self.eps = threshold, threshold_mode, eps
        self.min_lrs = per_group("min_lr", optimizer, min_lr)
        self.default_min_lr = None if isinstance(min_lr, list | tuple) else min_lr
        self.last_epoch = 0
        self._last_lr = self._rates()
        self._reset()

    def _reset(self) -> None:
        """Forget the best and all counts."""
        self.best = inf if self.mode == "min" else -inf
        self.cooldown_counter = self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def _is_better(self, a: float, best: float) -> bool:
        """Whether `a` is progress over `best`."""
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            return sign * a > sign * best * (1 + sign * self.threshold)
        return sign * a > sign * best + self.threshold

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Count an epoch that ended with `metrics`, a number or a tensor of one element."""
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(value, self.best):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._rates()

    def _reduce_lr(self, epoch: int) -> None:
        """Lower the rates."""
        if len(self.min_lrs) != len(self.optimizer.param_groups):
            if self.default_min_lr is None:
                raise ArgumentError(
                    "min_lr needs one value for each parameter group",
                    hint="scheduler.min_lrs.append(...) for each new group",
                )
            self.min_lrs = per_group("min_lr", self.optimizer, self.default_min_lr)
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            lr = max(group["lr"] * self.factor, least)
            if group["lr"] - lr > self.eps:
                group["lr"] = lr
