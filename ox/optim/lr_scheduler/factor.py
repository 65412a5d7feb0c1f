"""Plans that multiply the rate by a factor of the epoch, so that several on one optimizer multiply each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ox.errors import ArgumentError, LoadError
from ox.optim.lr_scheduler.base import LRScheduler, per_group
from ox.optim.optimizer import Optimizer


class FactorLR(LRScheduler, ABC):
    """A subclass gives `_factor(epoch)`. While the rate is what this plan alone makes of `initial_lr`, it is computed
    from that, and does not gather rounding; once something else changed it, it moves by the ratio of two factors."""

    _keeps_rate_on_resume = True  # whether a resuming constructor leaves the rate as it is

    @abstractmethod
    def _factor(self, epoch: int) -> float:
        """What the first rate is multiplied by."""

    def _get_closed_form_lr(self) -> list[float]:
        return [lr * self._factor(self.last_epoch) for lr in self.base_lrs]

    def get_lr(self) -> list[float]:
        now = self._factor(self.last_epoch)
        if self.last_epoch == 0:
            return [lr * now for lr in self._rates()]
        if self._starting and self._keeps_rate_on_resume:
            return self._rates()
        before = self._factor(self.last_epoch - 1)
        return [
            base * now if base is not None and lr == base * before else lr * (now / before if before else 1.0)
            for lr, base in zip(self._rates(), self._bases(), strict=True)
        ]


class StepLR(FactorLR):
    """lr·gamma^floor(epoch / step_size). `torch.optim.lr_scheduler.StepLR`."""

    _keeps_rate_on_resume = False

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return self.gamma ** (epoch // self.step_size)


class MultiStepLR(FactorLR):
    """lr·gamma for each milestone that was reached. `torch.optim.lr_scheduler.MultiStepLR`."""

    _keeps_rate_on_resume = False

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return self.gamma ** bisect_right(self.milestones, epoch)


class ConstantLR(FactorLR):
    """lr·factor for `total_iters` epochs, then lr. `torch.optim.lr_scheduler.ConstantLR`."""

    _keeps_rate_on_resume = False

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ArgumentError("factor must be in [0, 1]", got=str(factor))
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return self.factor if epoch < self.total_iters else 1.0


class LinearLR(FactorLR):
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
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ArgumentError(
                "start_factor must be in (0, 1], end_factor in [0, 1]", got=f"{start_factor}, {end_factor}"
            )
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        part = min(epoch, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * part


class ExponentialLR(FactorLR):
    """lr·gamma^epoch. `torch.optim.lr_scheduler.ExponentialLR`."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return self.gamma**epoch


class PolynomialLR(FactorLR):
    """lr·(1 - epoch/total_iters)^power. `torch.optim.lr_scheduler.PolynomialLR`."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return (1 - min(epoch, self.total_iters) / self.total_iters) ** self.power


class _Functions(LRScheduler):
    """Functions of the epoch, one a group. Functions are not part of the state; objects that can be called are."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Any], last_epoch: int = -1
    ) -> None:
        self.lr_lambdas = per_group("lr_lambda", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        kept = [None if hasattr(f, "__code__") else dict(vars(f)) for f in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved = state_dict["lr_lambdas"]
        if len(saved) > len(self.lr_lambdas):
            raise LoadError(
                f"the state does not fit {type(self).__name__}",
                expected=f"at most {len(self.lr_lambdas)} functions",
                got=str(len(saved)),
                hint="one function for each group of the optimizer that the state was saved from",
            )
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, kept in zip(self.lr_lambdas, saved, strict=False):
            if kept is not None:
                function.__dict__.update(kept)


class LambdaLR(_Functions):
    """lr·function(epoch). `torch.optim.lr_scheduler.LambdaLR`."""

    def get_lr(self) -> list[float]:
        return [lr * f(self.last_epoch) for lr, f in self._values("base_lrs", "lr_lambdas")]


class MultiplicativeLR(_Functions):
    """The last rate times function(epoch). `torch.optim.lr_scheduler.MultiplicativeLR`."""

    def get_lr(self) -> list[float]:
        if self._starting:
            return self._rates()
        functions = [f for (f,) in self._values("lr_lambdas")]
        return [lr * f(self.last_epoch) for lr, f in zip(self._rates(), functions, strict=True)]
