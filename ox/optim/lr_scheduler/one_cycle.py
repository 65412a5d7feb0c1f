"""One cycle up and down over the whole training."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ox.errors import ArgumentError
from ox.optim.lr_scheduler.base import LRScheduler, check_entries, checked, per_group, set_momentum
from ox.optim.optimizer import Optimizer


class OneCycleLR(LRScheduler):
    """Up from max_lr/div_factor to max_lr and down to (that start)/final_div_factor, momentum the other way (Smith and
    Topin, 2019). `torch.optim.lr_scheduler.OneCycleLR`; step it after every batch.

    Args:
        max_lr: one for all groups, or one a group.
        total_steps: or `epochs` times `steps_per_epoch`.
        pct_start: the part of the steps that goes up.
        anneal_strategy: "cos" or "linear".
        three_phase: down to the start first, then to the end.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if not epochs or not steps_per_epoch:
                raise ArgumentError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1 or not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                "invalid option of OneCycleLR",
                expected="total_steps of 1 or more, pct_start 0 to 1, anneal_strategy 'cos' or 'linear'",
                got=f"{total_steps}, {pct_start}, {anneal_strategy!r}",
            )
        self.total_steps, self.anneal_strategy, self.cycle_momentum = total_steps, anneal_strategy, cycle_momentum
        top = float(pct_start * total_steps) - 1
        if three_phase:
            self._ends = [top, 2 * top, total_steps - 1]
            self._corners = [("initial_lr", "max_lr"), ("max_lr", "initial_lr"), ("initial_lr", "min_lr")]
            self._swings = [(1, 0), (0, 1), (1, 1)]
        else:
            self._ends = [top, total_steps - 1]
            self._corners = [("initial_lr", "max_lr"), ("max_lr", "min_lr")]
            self._swings = [(1, 0), (0, 1)]
        groups = checked(optimizer).param_groups
        tops = per_group("max_lr", optimizer, max_lr)
        lows, highs = (per_group("momentum", optimizer, m) for m in (base_momentum, max_momentum))
        for group, most, low, high in zip(groups, tops, lows, highs, strict=True):
            if last_epoch == -1:
                start = most / div_factor
                rates = {"lr": start, "initial_lr": start, "max_lr": most, "min_lr": start / final_div_factor}
                group.update({name: float(rate) for name, rate in rates.items()})
                if cycle_momentum:
                    set_momentum(group, high, "OneCycleLR")
                    group.update({"base_momentum": low, "max_momentum": high})
        super().__init__(optimizer, last_epoch)

    def _phase(self) -> tuple[int, float]:
        # as in PyTorch, step() after each of total_steps batches is right, though the last rate is then never used
        if self.last_epoch > self.total_steps:
            raise ArgumentError(
                f"OneCycleLR was created for {self.total_steps} steps; this is one more",
                hint="a larger total_steps, or fewer calls of step()",
            )
        start = 0.0
        for i, end in enumerate(self._ends):
            if self.last_epoch <= end or i == len(self._ends) - 1:
                return i, (self.last_epoch - start) / (end - start) if end != start else 1.0
            start = end
        return 0, 0.0

    def _between(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start

    def get_lr(self) -> list[float]:
        phase, part = self._phase()
        first, second = self._corners[phase]
        rates = []
        names = ["initial_lr", "max_lr", "min_lr", *["base_momentum", "max_momentum"] * self.cycle_momentum]
        check_entries("OneCycleLR", self.optimizer.param_groups, names)
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[first], group[second], part))
            if self.cycle_momentum:
                ends = (group["base_momentum"], group["max_momentum"])
                a, b = self._swings[phase]
                set_momentum(group, self._between(ends[a], ends[b], part), "OneCycleLR")
        return rates
