"""Schedulers against PyTorch: rates, momenta, chaining, resuming, refusals."""

from __future__ import annotations

import inspect
import json
import warnings
from typing import Any

import numpy as np
import pytest

import ox
from ox import optim

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

ours, theirs = ox.optim.lr_scheduler, torch.optim.lr_scheduler

# (name, options), or several of them on one optimizer
PLANS: list[Any] = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.5}),
    ("ConstantLR", {}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 8}),
    ("LinearLR", {"start_factor": 0.2, "total_iters": 6}),
    ("LinearLR", {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 6}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {}),
    ("PolynomialLR", {"total_iters": 12, "power": 2.5}),
    ("CosineAnnealingLR", {"T_max": 8, "eta_min": 0.001}),
    ("CosineAnnealingLR", {"T_max": 30}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
    ("LambdaLR", {"lr_lambda": lambda n: 0.9**n}),
    ("MultiplicativeLR", {"lr_lambda": lambda n: 0.9 if n % 2 else 1.1}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 21}),
    (
        "OneCycleLR",
        {"max_lr": 0.3, "epochs": 3, "steps_per_epoch": 7, "three_phase": True, "anneal_strategy": "linear"},
    ),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 21, "cycle_momentum": False, "pct_start": 0.5}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "step_size_down": 5, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "mode": "exp_range", "gamma": 0.95}),
    (
        "CyclicLR",
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 2, "scale_fn": lambda x: 1 / x, "cycle_momentum": False},
    ),
]
TOGETHER: list[list[Any]] = [
    [("ConstantLR", {"factor": 0.5}), ("ExponentialLR", {"gamma": 0.9})],
    [("LinearLR", {"total_iters": 4}), ("StepLR", {"step_size": 3})],
    [("LinearLR", {"total_iters": 4}), ("CosineAnnealingLR", {"T_max": 7})],
    [("MultiplicativeLR", {"lr_lambda": lambda n: 0.95}), ("PolynomialLR", {"total_iters": 9})],
    [("ExponentialLR", {"gamma": 0.8}), ("CosineAnnealingLR", {"T_max": 3, "eta_min": 0.01})],
    [("CosineAnnealingLR", {"T_max": 5}), ("MultiStepLR", {"milestones": [2, 8]}), ("ConstantLR", {})],
]


def ids(plan: Any) -> str:
    if isinstance(plan, str):
        return plan
    if isinstance(plan, list):
        return "+".join(name for name, _ in plan)
    return plan[0] + "".join(f"-{k}={v}" for k, v in plan[1].items() if "<" not in str(v))  # functions have addresses


def optimizers(name: str) -> tuple[Any, Any]:
    options = {"lr": 0.2, **({"momentum": 0.9} if name == "SGD" else {})}
    a, b = (np.ones(n, np.float32) for n in (2, 3))
    mine = getattr(optim, name)(
        [{"params": [ox.nn.Parameter(a)]}, {"params": [ox.nn.Parameter(b)], "lr": 0.5}], **options
    )
    yours = getattr(torch.optim, name)(
        [
            {"params": [torch.tensor(a, requires_grad=True)]},
            {"params": [torch.tensor(b, requires_grad=True)], "lr": 0.5},
        ],
        **options,
    )
    return mine, yours


def agree(mine: Any, yours: Any) -> None:
    for one, other in zip(mine.param_groups, yours.param_groups, strict=True):
        for key in ("lr", "momentum", "betas"):
            if key in other:
                assert np.allclose(one[key], other[key], rtol=1e-9, atol=1e-15), key
        assert one.tensor("lr").item() == one["lr"]


def go_on(mine: Any, yours: Any, plans: list[tuple[Any, Any]], steps: int = 20) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            agree(mine, yours)
            for plan, plan_there in plans:
                plan.step()
                plan_there.step()
                assert plan.get_last_lr() == pytest.approx(plan_there.get_last_lr(), rel=1e-9, abs=1e-15)
        agree(mine, yours)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("plan", PLANS, ids=ids)
def test_alone(plan: Any, name: str) -> None:
    mine, yours = optimizers(name)
    pair = getattr(ours, plan[0])(mine, **plan[1]), getattr(theirs, plan[0])(yours, **plan[1])
    go_on(mine, yours, [pair])


def make(there: Any, optimizer: Any, plans: list[Any]) -> list[Any]:
    return [getattr(there, name)(optimizer, **options) for name, options in plans]


@pytest.mark.parametrize("plans", TOGETHER, ids=ids)
@pytest.mark.parametrize("how", ["each", "ChainedScheduler", "SequentialLR"])
def test_together(plans: list[Any], how: str) -> None:
    mine, yours = optimizers("SGD")
    both = make(ours, mine, plans), make(theirs, yours, plans)
    if how == "each":
        go_on(mine, yours, list(zip(*both, strict=True)))
        return
    if how == "ChainedScheduler":
        pair = ours.ChainedScheduler(both[0]), theirs.ChainedScheduler(both[1])
    else:
        milestones = [4, 11][: len(plans) - 1]
        pair = ours.SequentialLR(mine, both[0], milestones), theirs.SequentialLR(yours, both[1], milestones)
    go_on(mine, yours, [pair])


def test_warmup_then_restarts() -> None:
    plans = [("LinearLR", {"start_factor": 0.1, "total_iters": 3}), ("CosineAnnealingWarmRestarts", {"T_0": 4})]
    mine, yours = optimizers("SGD")
    pair = (
        ours.SequentialLR(mine, make(ours, mine, plans), [3]),
        theirs.SequentialLR(yours, make(theirs, yours, plans), [3]),
    )
    go_on(mine, yours, [pair])


RESUMING = [p for p in PLANS if p[0] not in ("LambdaLR", "MultiplicativeLR") and "scale_fn" not in p[1]]


@pytest.mark.parametrize("plan", RESUMING, ids=ids)
def test_resuming(plan: Any) -> None:
    """The state is plain data; loaded into new objects it goes on as PyTorch's does."""
    mine, yours = optimizers("SGD")
    one, other = getattr(ours, plan[0])(mine, **plan[1]), getattr(theirs, plan[0])(yours, **plan[1])
    go_on(mine, yours, [(one, other)], 6)
    state, groups = json.loads(json.dumps(one.state_dict())), mine.state_dict()
    again, _ = optimizers("SGD")
    new = getattr(ours, plan[0])(again, **plan[1])
    again.load_state_dict(groups)
    new.load_state_dict(state)
    go_on(again, yours, [(new, other)], 10)


@pytest.mark.parametrize("plan", [p for p in PLANS if p[0] not in ("CosineAnnealingWarmRestarts",)], ids=ids)
def test_last_epoch(plan: Any) -> None:
    """Going on by number alone, in groups that hold what a checkpoint gave them."""
    mine, yours = optimizers("SGD")
    getattr(ours, plan[0])(mine, **plan[1])
    getattr(theirs, plan[0])(yours, **plan[1])
    pair = (
        getattr(ours, plan[0])(mine, **plan[1], last_epoch=4),
        getattr(theirs, plan[0])(yours, **plan[1], last_epoch=4),
    )
    go_on(mine, yours, [pair], 10)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"patience": 1, "factor": 0.5},
        {"patience": 0, "cooldown": 2, "min_lr": 0.05},
        {"mode": "max", "patience": 1, "threshold": 0.1},
        {"mode": "max", "patience": 0, "threshold": 0.5, "threshold_mode": "abs", "min_lr": [0.1, 0.2]},
        {"patience": 0, "threshold": 0.5, "threshold_mode": "abs", "eps": 0.05},
    ],
    ids=str,
)
def test_plateau(options: dict[str, Any]) -> None:
    mine, yours = optimizers("SGD")
    one, other = ours.ReduceLROnPlateau(mine, **options), theirs.ReduceLROnPlateau(yours, **options)
    values = [3, 2, 2.5, 2.6, 2.7, 1, 1.05, 0.97, 1.2, 1.3, 1.4, 1.5, 1.6, 1.1, 1.8, 0.5, 0.6, 0.7]
    for value in values:
        one.step(ox.tensor(value))
        other.step(torch.tensor(value))
        agree(mine, yours)
        assert one.get_last_lr() == pytest.approx(other.get_last_lr())
    for name in ("best", "num_bad_epochs", "cooldown_counter", "last_epoch"):
        assert getattr(one, name) == pytest.approx(getattr(other, name)), name


def test_parts_of_an_epoch() -> None:
    mine, yours = optimizers("SGD")
    one = ours.CosineAnnealingWarmRestarts(mine, 3, 2)
    other = theirs.CosineAnnealingWarmRestarts(yours, 3, 2)
    for epoch in (0.5, 1.25, 2.75, 3.0, 3.5, 8.9, 9.0, 22.5):
        one.step(epoch)
        other.step(epoch)
        agree(mine, yours)


GROUP_ENTRIES = {"initial_lr": 0.4, "max_lr": 0.8, "min_lr": 0.01, "base_momentum": 0.7, "max_momentum": 0.9}


def outcomes(side: Any, optimizer: Any, parameter: Any, plans: list[Any], how: str, entries: dict[str, Any]) -> Any:
    """The rates after each of 12 steps; a group is added after the second. The last entry is None after an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedulers = make(side, optimizer, plans)
        if how == "ChainedScheduler":
            schedulers = [side.ChainedScheduler(schedulers)]
        elif how == "SequentialLR":
            schedulers = [side.SequentialLR(optimizer, schedulers, [4, 11][: len(plans) - 1])]
        rates: list[Any] = []
        for i in range(12):
            if i == 2:
                optimizer.add_param_group({"params": [parameter], "lr": 9.0, **entries})
            try:
                for scheduler in schedulers:
                    scheduler.step(*[1.0] * (type(scheduler).__name__ == "ReduceLROnPlateau"))
            except (ValueError, KeyError, RuntimeError):
                return [*rates, None]
            rates.append([group["lr"] for group in optimizer.param_groups])
    return rates


ALONE = [[plan] for plan in PLANS] + [[("ReduceLROnPlateau", {"patience": 1})]]
LATER_GROUPS = [(plans, "each") for plans in ALONE + TOGETHER] + [
    (plans, how) for plans in TOGETHER for how in ("ChainedScheduler", "SequentialLR")
]


@pytest.mark.parametrize("entries", [{}, GROUP_ENTRIES], ids=["bare", "with entries"])
@pytest.mark.parametrize(("plans", "how"), LATER_GROUPS, ids=ids)
def test_a_group_that_is_added_after_the_scheduler(plans: list[Any], how: str, entries: dict[str, Any]) -> None:
    """What goes on in PyTorch goes on with the same rates; where PyTorch ends with an error, so does ox."""
    mine, yours = optimizers("SGD")
    a = outcomes(ours, mine, ox.nn.Parameter(ox.ones(2)), plans, how, entries)
    b = outcomes(theirs, yours, torch.nn.Parameter(torch.ones(2)), plans, how, entries)
    assert len(a) == len(b) and (a[-1] is None) == (b[-1] is None)
    for one, other in zip(a, b, strict=True):
        assert one is None or np.allclose(one, other, rtol=1e-9, atol=1e-15)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("ConstantLR", {"factor": 1.5}),
    ("LinearLR", {"start_factor": 0.0}),
    ("LinearLR", {"end_factor": 1.5}),
    ("LambdaLR", {"lr_lambda": [lambda n: 1.0] * 3}),
    ("OneCycleLR", {"max_lr": 0.1}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 0}),
    ("OneCycleLR", {"max_lr": [0.1] * 3, "total_steps": 5}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 5, "anneal_strategy": "sine"}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.2, "mode": "other"}),
    ("CyclicLR", {"base_lr": [0.1], "max_lr": 0.2}),
    ("CosineAnnealingWarmRestarts", {"T_0": 0}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 0}),
    ("ReduceLROnPlateau", {"factor": 1.0}),
    ("ReduceLROnPlateau", {"mode": "best"}),
    ("ReduceLROnPlateau", {"min_lr": [0.1]}),
    ("SequentialLR", {"schedulers": [], "milestones": []}),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_both_refuse(case: Any) -> None:
    name, options = case
    mine, yours = optimizers("SGD")
    with pytest.raises(ValueError):
        getattr(ours, name)(mine, **options)
    with pytest.raises(ValueError):
        getattr(theirs, name)(yours, **options)
    with pytest.raises(TypeError):
        ours.StepLR(7, 3)


def test_combinations_are_checked() -> None:
    (mine, _), (other, _) = optimizers("SGD"), optimizers("SGD")
    plan = ours.StepLR(mine, 2)
    for schedulers in ([], [plan, ours.StepLR(other, 2)], [plan, ours.ReduceLROnPlateau(mine)]):
        with pytest.raises(ValueError):
            ours.ChainedScheduler(schedulers)
        with pytest.raises(ValueError):
            ours.SequentialLR(mine, schedulers, [1])
    with pytest.raises(ValueError):
        ours.SequentialLR(mine, [plan], [1])


@pytest.mark.parametrize("name", ours.__all__)
def test_arguments(name: str) -> None:
    mine = inspect.signature(getattr(ours, name).__init__).parameters.values()
    yours = inspect.signature(getattr(theirs, name).__init__).parameters.values()
    assert [p.name for p in mine] == [p.name for p in yours]
    for one, other in zip(mine, yours, strict=True):
        assert one.default == other.default, one.name
