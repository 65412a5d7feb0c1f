"""Several plans for one optimizer: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ox.errors import ArgumentError
from ox.optim.lr_scheduler.base import LRScheduler
from ox.optim.lr_scheduler.plateau import ReduceLROnPlateau
from ox.optim.optimizer import Optimizer


class _Combined(LRScheduler):
    _schedulers: list[LRScheduler]

    def _set_schedulers(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> None:
        name = type(self).__name__
        if not schedulers:
            raise ArgumentError(f"{name} needs a scheduler", got="none")
        self._schedulers = list(schedulers)
        self.optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        for i, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ArgumentError(
                    f"{name} cannot contain ReduceLROnPlateau: its step needs a metric", got=f"scheduler {i}"
                )
            if scheduler.optimizer is not self.optimizer:
                raise ArgumentError(f"{name} takes schedulers of one optimizer", got=f"scheduler {i} has another")

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ChainedScheduler(_Combined):
    """Every step steps them all. `torch.optim.lr_scheduler.ChainedScheduler`."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self._set_schedulers(schedulers, optimizer)
        self._last_lr = self._rates()

    def step(self, epoch: int | None = None) -> None:
        _refuse_jump(self, epoch)
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates()


class SequentialLR(_Combined):
    """One after the other: the next from each milestone on, as if it started there.
    `torch.optim.lr_scheduler.SequentialLR`."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        self._set_schedulers(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                "SequentialLR needs a milestone between two schedulers",
                expected=f"{len(schedulers) - 1} milestones",
                got=str(len(milestones)),
            )
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        for i, group in enumerate(optimizer.param_groups):
            if "initial_lr" not in group:
                raise ArgumentError(
                    f"parameter group {i} has no 'initial_lr': it was added after the schedulers were made",
                    hint="optimizer.add_param_group(...) before the schedulers, or 'initial_lr' in the group",
                )
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        _undo(self)  # each has taken the first step when it was made
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        _refuse_jump(self, epoch)
        self.last_epoch += 1
        place = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[place]
        if place and self._milestones[place - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _refuse_jump(scheduler: _Combined, epoch: int | None) -> None:
    if epoch is not None:
        raise ArgumentError(f"{type(scheduler).__name__} does not jump to an epoch", got=f"step({epoch})")


def _undo(scheduler: LRScheduler) -> None:
    if isinstance(scheduler, _Combined):
        for each in scheduler._schedulers:
            _undo(each)
    else:
        scheduler.last_epoch -= 1
