"""Methods that public code replaces in optimizers and schedulers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import ox
from ox import optim
from ox.errors import ArgumentError
from ox.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau


def one() -> list[Any]:
    return [ox.nn.Parameter(ox.ones(2))]


def test_init_group_without_a_step_is_refused() -> None:
    class Mine(optim.SGD):
        def _init_group(self, group: Any, *lists: Any) -> Any:
            return super()._init_group(group, *lists)

    class Whole(Mine):
        def step(self, closure: Any = None) -> Any:
            self._cuda_graph_capture_health_check()
            return "mine"

    with pytest.raises(ArgumentError, match="_init_group"):
        Mine(one(), lr=0.1)
    assert Whole(one(), lr=0.1).step() == "mine"


def test_a_state_is_taken_by_setstate() -> None:
    class Newer(optim.SGD):
        def __setstate__(self, state: Any) -> None:
            super().__setstate__(state)
            for group in self.param_groups:
                group.setdefault("fresh", 3)

    old, new = optim.SGD(one(), lr=0.5, momentum=0.9), Newer(one(), lr=0.1, momentum=0.9)
    old.param_groups[0]["params"][0].grad = ox.ones(2)
    old.step()
    new.load_state_dict(old.state_dict())
    group = new.param_groups[0]
    assert group["fresh"] == 3 and group["lr"] == 0.5
    assert (new.state[group["params"][0]]["momentum_buffer"].array == 1).all()
    assert copy.deepcopy(new).param_groups[0]["fresh"] == 3


def test_a_closed_form_serves_jumps() -> None:
    class Mine(LRScheduler):
        def get_lr(self) -> list[float]:
            assert self._get_lr_called_within_step
            return [group["lr"] * 0.5 for group in self.optimizer.param_groups]

        def _get_closed_form_lr(self) -> list[float]:
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    plan = Mine(optim.SGD(one(), lr=1.0))
    assert plan.get_last_lr() == [0.5] and plan._step_count == 1
    plan.step()
    assert plan.get_last_lr() == [0.25]
    plan.step(5)
    assert plan.get_last_lr() == [0.5**5] and plan._step_count == 3
    with pytest.raises(AssertionError):
        plan.get_lr()


def test_how_a_rate_is_lowered() -> None:
    class Told(ReduceLROnPlateau):
        def _reduce_lr(self, epoch: int) -> None:
            epochs.append(epoch)
            super()._reduce_lr(epoch)

    epochs: list[int] = []
    plan = Told(optim.SGD(one(), lr=1.0), patience=0)
    for loss in (1.0, 2.0, 2.0):
        plan.step(loss)
    assert epochs == [2, 3] and plan.get_last_lr() == [pytest.approx(0.01)]
