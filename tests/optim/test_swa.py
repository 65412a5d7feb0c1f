"""Averages of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox import nn, optim
from ox.optim import swa_utils


def test_the_mean_of_three() -> None:
    model = nn.Linear(1, 1, bias=False)
    averaged = swa_utils.AveragedModel(model)
    for value in (1.0, 2.0, 6.0):
        model.weight.array[...] = value
        averaged.update_parameters(model)
    assert averaged.module.weight.item() == 3 and averaged.n_averaged.item() == 3
    assert averaged(ox.ones(2, 1)).tolist() == [[3.0], [3.0]]
    assert set(averaged.state_dict()) == {"module.weight", "n_averaged"}


def test_exponential() -> None:
    model = nn.Linear(1, 1, bias=False)
    averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.5))
    for value in (4.0, 2.0, 1.0):
        model.weight.array[...] = value
        averaged.update_parameters(model)
    assert averaged.module.weight.item() == 2


def test_statistics_of_all_batches() -> None:
    model = nn.Sequential(nn.BatchNorm1d(1)).eval()
    batches = [np.float32([[0], [2]]), np.float32([[4], [8]])]
    swa_utils.update_bn([(ox.tensor(x), None) for x in batches], model)
    assert model[0].running_mean.item() == 3.5  # of 1 and 6
    assert model[0].running_var.item() == 5  # of 2 and 8
    assert not model.training and model[0].momentum == 0.1


def test_the_rate_goes_to_its_end() -> None:
    optimizer = optim.SGD([nn.Parameter(np.ones(1, np.float32))], lr=1.0)
    plan = swa_utils.SWALR(optimizer, 0.5, anneal_epochs=2, anneal_strategy="linear")
    found = []
    for _ in range(4):
        found.append(optimizer.param_groups[0]["lr"])
        plan.step()
    assert found == [1, 0.75, 0.5, 0.5]


@pytest.mark.parametrize("average", [None, swa_utils.get_ema_avg_fn(0.5)])
def test_in_a_compiled_step(average: Any) -> None:
    found = []
    for compiled in (False, True):
        model = nn.Linear(2, 1, bias=False)
        with ox.no_grad():
            model.weight.fill_(0.0)
        averaged = swa_utils.AveragedModel(model, avg_fn=average)

        def step(x: Any, model: Any = model, averaged: Any = averaged) -> Any:
            with ox.no_grad():
                model.weight.add_(x)
            averaged.update_parameters(model)
            return averaged.module.weight.detach().sum()

        run = ox.compile(step) if compiled else step
        found.append([round(run(ox.ones(1, 2)).item(), 4) for _ in range(6)])
    assert found[0] == found[1]
    assert "recorded 2 times" in str(run.explain())
