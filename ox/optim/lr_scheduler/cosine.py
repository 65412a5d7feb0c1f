"""Half a cosine down, once or again and again (Loshchilov and Hutter, 2017)."""

from __future__ import annotations

from math import cos, floor, log, pi

from ox.errors import ArgumentError
from ox.optim.lr_scheduler.base import LRScheduler
from ox.optim.optimizer import Optimizer


class CosineAnnealingLR(LRScheduler):
    """From lr to `eta_min` along half a cosine in `T_max` steps, and back.

    `torch.optim.lr_scheduler.CosineAnnealingLR`. Like the plans of a factor, it goes on from a rate that something
    else changed.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _part(self, epoch: int) -> float:
        return (1 + cos(pi * epoch / self.T_max)) / 2

    def _plan(self, base: float, epoch: int) -> float:
        return self.eta_min + (base - self.eta_min) * self._part(epoch)

    def _get_closed_form_lr(self) -> list[float]:
        return [self._plan(lr, self.last_epoch) for lr in self.base_lrs]

    def get_lr(self) -> list[float]:
        if self._starting:
            return self._rates()
        epoch = self.last_epoch
        turned = (epoch - 1 - self.T_max) % (2 * self.T_max) == 0  # the last rate was eta_min: no ratio goes on from it
        rates = []
        for lr, base in zip(self._rates(), self._bases(), strict=True):
            if base is not None and lr == self._plan(base, epoch - 1):
                rates.append(self._plan(base, epoch))
            elif turned:
                if base is None:
                    raise self._missing_group_values("base_lrs", len(self.base_lrs))
                rates.append(lr + (base - self.eta_min) * (1 - cos(pi / self.T_max)) / 2)
            else:
                rates.append(self.eta_min + (lr - self.eta_min) * self._part(epoch) / self._part(epoch - 1))
        return rates


class CosineAnnealingWarmRestarts(LRScheduler):
    """From lr to `eta_min` along half a cosine in `T_0` steps, then from lr again in `T_mult` times as many.
    `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`; `step(epoch)` takes parts of an epoch."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or not isinstance(T_mult, int) or T_0 < 1 or T_mult < 1:
            raise ArgumentError("T_0 and T_mult are whole numbers from 1 on", got=f"{T_0}, {T_mult}")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min = T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        part = (1 + cos(pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (lr - self.eta_min) * part for lr in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Move on by one, or to `epoch`."""
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = epoch or 0
            if epoch < 0:
                raise ArgumentError("an epoch is not negative", got=str(epoch))
            runs = 0
            if epoch >= self.T_0 and self.T_mult > 1:
                runs = int(log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_i = self.T_0 * self.T_mult**runs
            done = self.T_0 * (self.T_mult**runs - 1) / (self.T_mult - 1) if self.T_mult > 1 else 0
            self.T_cur = epoch % self.T_0 if self.T_mult == 1 else epoch - done
        self.last_epoch = floor(epoch)
        self._set(self.get_lr())
