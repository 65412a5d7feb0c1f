"""Plans by hand: the rates of a group that starts at 1, state, and what a captured step reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import optim
from ox.errors import ArgumentError, DTypeError, LoadError
from ox.optim import lr_scheduler as plans


def sgd(lr: float = 1.0, **options: Any) -> optim.SGD:
    return optim.SGD([ox.nn.Parameter(np.ones(2, np.float32))], lr=lr, **options)


def rates(make: Any, steps: int) -> list[float]:
    optimizer = sgd(momentum=0.9)
    plan = make(optimizer)
    found = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps - 1):
        plan.step()
        assert plan.get_last_lr() == [optimizer.param_groups[0]["lr"]]
        found.append(optimizer.param_groups[0].tensor("lr").item())
    return found


@rows(
    ("make", "expected"),
    [
        (lambda o: plans.StepLR(o, 2), [1, 1, 0.1, 0.1, 0.01]),
        (lambda o: plans.MultiStepLR(o, [1, 3], 0.5), [1, 0.5, 0.5, 0.25, 0.25]),
        (lambda o: plans.ConstantLR(o, 0.5, 2), [0.5, 0.5, 1, 1]),
        (lambda o: plans.LinearLR(o, 0.25, 1.0, 3), [0.25, 0.5, 0.75, 1, 1]),
        (lambda o: plans.ExponentialLR(o, 0.5), [1, 0.5, 0.25, 0.125]),
        (lambda o: plans.PolynomialLR(o, 4, 2.0), [1, 9 / 16, 1 / 4, 1 / 16, 0, 0]),
        (lambda o: plans.CosineAnnealingLR(o, 2), [1, 0.5, 0, 0.5, 1]),
        (lambda o: plans.CosineAnnealingWarmRestarts(o, 2, 2), [1, 0.5, 1, 0.5 + 2**-1.5, 0.5, 0.5 - 2**-1.5, 1]),
        (lambda o: plans.LambdaLR(o, lambda n: n + 1), [1, 2, 3]),
        (lambda o: plans.MultiplicativeLR(o, lambda n: n + 1), [1, 2, 6]),
        (lambda o: plans.CyclicLR(o, 0.0, 1.0, 2), [0, 0.5, 1, 0.5, 0, 0.5]),
        (lambda o: plans.CyclicLR(o, 0.0, 1.0, 1, mode="triangular2"), [0, 1, 0, 0.5, 0, 0.25]),
        (
            lambda o: plans.OneCycleLR(o, 1.0, 5, pct_start=0.6, anneal_strategy="linear"),
            [0.04, 0.52, 1, 0.500002, 4e-6],
        ),
        (lambda o: plans.SequentialLR(o, [plans.ConstantLR(o, 0.5), plans.StepLR(o, 1)], [2]), [0.5, 0.5, 1, 0.1]),
        (
            lambda o: plans.ChainedScheduler([plans.ConstantLR(o, 0.5, 2), plans.ExponentialLR(o, 0.5)]),
            [0.5, 0.25, 0.25, 0.125],
        ),
    ],
)
def test_rates(make: Any, expected: list[float]) -> None:
    assert rates(make, len(expected)) == pytest.approx(expected)


def test_the_last_rate_of_many_is_exact() -> None:
    """A plan alone computes from the start, and does not gather rounding."""
    optimizer = sgd(0.3)
    plan = plans.ExponentialLR(optimizer, 0.999)
    for _ in range(1000):
        plan.step()
    assert optimizer.param_groups[0]["lr"] == 0.3 * 0.999**1000


def test_a_rate_set_by_hand_goes_on_from_there() -> None:
    optimizer = sgd()
    plan = plans.ExponentialLR(optimizer, 0.5)
    optimizer.param_groups[0]["lr"] = 10.0
    plan.step()
    assert optimizer.param_groups[0]["lr"] == 5.0


def test_plateau() -> None:
    optimizer = sgd()
    plan = plans.ReduceLROnPlateau(optimizer, patience=1, cooldown=1, factor=0.5, min_lr=0.2)
    found = []
    for loss in (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5):
        plan.step(loss)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == [1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.2, 0.2]
    again = plans.ReduceLROnPlateau(sgd())
    again.load_state_dict(plan.state_dict())
    assert again.best == 0.5 and again.factor == 0.5
    # a group that came later takes the one minimum for all
    optimizer.add_param_group({"params": [ox.nn.Parameter(np.ones(1, np.float32))], "lr": 1.0})
    for _ in range(5):
        plan.step(1.0)
    assert optimizer.param_groups[1]["lr"] < 1


def test_objects_are_state_and_functions_are_not() -> None:
    class Slope:
        def __init__(self) -> None:
            self.by = 0.5

        def __call__(self, n: int) -> float:
            return self.by**n

    first, second = Slope(), Slope()
    plan = plans.LambdaLR(sgd(), first)
    first.by = 0.25
    other = plans.LambdaLR(sgd(), second)
    other.load_state_dict(plan.state_dict())
    assert second.by == 0.25
    assert plans.LambdaLR(sgd(), lambda n: 1.0).state_dict()["lr_lambdas"] == [None]


def test_a_momentum_that_is_cycled_in_from_none() -> None:
    optimizer = optim.RMSprop([p := ox.nn.Parameter(np.ones(2, np.float32))], lr=0.1)
    p.grad = ox.ones(2)
    optimizer.step()
    plan = plans.OneCycleLR(optimizer, 0.1, total_steps=4)
    assert optimizer.param_groups[0]["momentum"] == 0.95
    optimizer.step()
    plan.step()
    assert "momentum_buffer" in optimizer.state[p]


LISTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("CosineAnnealingWarmRestarts", {"T_0": 3}, ["base_lrs"]),
    ("LambdaLR", {"lr_lambda": lambda n: 0.5}, ["base_lrs", "lr_lambdas"]),
    ("MultiplicativeLR", {"lr_lambda": lambda n: 0.5}, ["lr_lambdas"]),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "cycle_momentum": False}, ["base_lrs", "max_lrs"]),
    ("ReduceLROnPlateau", {"min_lr": [0.0], "patience": 0}, ["min_lrs"]),
]


@pytest.mark.parametrize(("name", "options", "lists"), LISTS, ids=[name for name, _, _ in LISTS])
def test_what_has_a_list_of_the_groups_names_it_when_a_group_is_added(
    name: str, options: dict[str, Any], lists: list[str]
) -> None:
    optimizer = sgd()
    plan = getattr(plans, name)(optimizer, **options)
    arguments = [1.0] * (name == "ReduceLROnPlateau")
    plan.step(*arguments)
    optimizer.add_param_group({"params": [ox.nn.Parameter(ox.ones(1))], "lr": 8.0})
    for each in lists:
        with pytest.raises(ArgumentError, match=each) as error:
            plan.step(*arguments)
        assert f"scheduler.{each}.append" in str(error.value)
        getattr(plan, each).append((lambda n: 0.5) if each == "lr_lambdas" else 0.0 if each == "min_lrs" else 8.0)
    plan.step(*arguments)
    assert 0 < optimizer.param_groups[1]["lr"] <= 8
    again = getattr(plans, name)(optimizer, **{k: v[0] if isinstance(v, list) else v for k, v in options.items()})
    again.load_state_dict(plan.state_dict())
    again.step(*arguments)


def test_settings_that_a_later_group_lacks_are_named() -> None:
    optimizer = sgd()
    step = plans.StepLR(optimizer, 2)
    one = plans.OneCycleLR(optimizer, 1.0, total_steps=9, cycle_momentum=False)
    two = optim.swa_utils.SWALR(optimizer, 0.1)
    optimizer.add_param_group({"params": [ox.nn.Parameter(ox.ones(1))]})
    with pytest.raises(ArgumentError, match="parameter group 1") as error:
        one.step()
    assert "max_lr" in str(error.value)
    with pytest.raises(ArgumentError, match="parameter group 1"):
        two.step()
    with pytest.raises(ArgumentError, match="initial_lr"):
        plans.SequentialLR(optimizer, [step], [])


def test_functions_of_more_groups_than_there_are_do_not_load() -> None:
    two = optim.SGD([{"params": [ox.nn.Parameter(ox.ones(1))]}, {"params": [ox.nn.Parameter(ox.ones(1))]}], lr=1.0)
    state = plans.LambdaLR(two, lambda n: 1.0).state_dict()
    plan = plans.LambdaLR(sgd(), lambda n: 1.0)
    with pytest.raises(LoadError, match="does not fit LambdaLR"):
        plan.load_state_dict(state)
    assert len(plan.base_lrs) == 1


def test_what_is_no_optimizer() -> None:
    with pytest.raises(DTypeError, match=r"(?s)must be an optimizer.*list"):
        plans.StepLR([1.0], 2)
