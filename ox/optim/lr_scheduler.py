"""Learning rates that follow a plan; each is a formula of the step count, so a resumed run goes on exactly.

A scheduler sets `group["lr"]`, and with it the tensor that a captured step reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ox.errors import ArgumentError
from ox.ops.explain import place
from ox.optim.group import Group
from ox.optim.optimizer import Optimizer


class LRScheduler:
    """The base: `torch.optim.lr_scheduler.LRScheduler`. Call `step()` after `optimizer.step()`.

    A subclass gives `get_lr`: one rate for each group at `last_epoch`.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group["initial_lr"] = group["lr"]
            elif "initial_lr" not in group:
                raise ArgumentError("last_epoch needs groups with 'initial_lr'", where=place())
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: list[float] = []
        self.step()

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`."""
        raise ArgumentError(f"{type(self).__name__} has no get_lr")

    def step(self) -> None:
        """Move on by one and set the rates."""
        self.last_epoch += 1
        for group, lr in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = lr
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Numbers and lists of numbers: everything but the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict()`. The rates themselves are in the optimizer's state."""
        self.__dict__.update(state_dict)


class StepLR(LRScheduler):
    """lr·gamma^floor(epoch / step_size). `torch.optim.lr_scheduler.StepLR`."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [lr * self.gamma ** (self.last_epoch // self.step_size) for lr in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """From lr to `eta_min` along half a cosine in `T_max` steps, and back (Loshchilov and Hutter, 2017).
    `torch.optim.lr_scheduler.CosineAnnealingLR`."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        part = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (lr - self.eta_min) * part for lr in self.base_lrs]


class LinearLR(LRScheduler):
    """lr times a factor that goes from `start_factor` to `end_factor` in `total_iters` steps.
    `torch.optim.lr_scheduler.LinearLR`."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        part = min(self.last_epoch, self.total_iters) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * part
        return [lr * factor for lr in self.base_lrs]


class LambdaLR(LRScheduler):
    """lr·function(epoch). `torch.optim.lr_scheduler.LambdaLR`; the function is not part of the state."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Any], last_epoch: int = -1
    ) -> None:
        count = len(optimizer.param_groups)
        functions = list(lr_lambda) if isinstance(lr_lambda, Sequence) else [lr_lambda] * count
        if len(functions) != count:
            raise ArgumentError("LambdaLR needs one function a group", expected=str(count), got=str(len(functions)))
        self._functions = functions
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [lr * f(self.last_epoch) for lr, f in zip(self.base_lrs, self._functions, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().state_dict().items() if k != "_functions"}


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
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if not epochs or not steps_per_epoch:
                raise ArgumentError("OneCycleLR needs total_steps, or epochs and steps_per_epoch", where=place())
            total_steps = epochs * steps_per_epoch
        if total_steps < 1 or not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                "OneCycleLR cannot plan this",
                where=place(),
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
        groups = optimizer.param_groups
        tops = [float(m) for m in max_lr] if isinstance(max_lr, Sequence) else [float(max_lr)] * len(groups)
        for group, most in zip(groups, tops, strict=True):
            if last_epoch == -1:
                start = most / div_factor
                group.update({"lr": start, "max_lr": most, "min_lr": start / final_div_factor})
                if cycle_momentum:
                    self._set_momentum(group, max_momentum)
                    group.update({"base_momentum": base_momentum, "max_momentum": max_momentum})
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _set_momentum(group: Group, value: float) -> None:
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        elif group.get("momentum"):
            group["momentum"] = value
        else:
            raise ArgumentError(
                "OneCycleLR cycles a momentum, and this optimizer has none",
                where=place(),
                hint="cycle_momentum=False, or a momentum",
            )

    def _phase(self) -> tuple[int, float]:
        # as in PyTorch, step() after each of total_steps batches is right, though the last rate is then never used
        if self.last_epoch > self.total_steps:
            raise ArgumentError(
                f"OneCycleLR was told of {self.total_steps} steps and is asked for one more",
                where=place(),
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
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[first], group[second], part))
            if self.cycle_momentum:
                ends = (group["base_momentum"], group["max_momentum"])
                a, b = self._swings[phase]
                self._set_momentum(group, self._between(ends[a], ends[b], part))
        return rates
