"""Averaged models, their rates and their statistics against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox import nn, optim

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

ours, theirs = optim.swa_utils, torch.optim.swa_utils


def models() -> tuple[Any, Any]:
    there = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    here = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    here.load_state_dict({k: v.numpy().copy() for k, v in there.state_dict().items()})
    return here, there


def same(here: Any, there: Any) -> None:
    for (name, a), (other, b) in zip(here.state_dict().items(), there.state_dict().items(), strict=True):
        assert name == other
        assert np.allclose(a.array, b.numpy(), rtol=1e-5, atol=1e-6), name


AVERAGES: dict[str, Any] = {
    "mean": lambda s: {},
    "mean, one by one": lambda s: {"avg_fn": s.get_swa_avg_fn()},
    "mean of lists": lambda s: {"multi_avg_fn": s.get_swa_multi_avg_fn()},
    "exponential": lambda s: {"avg_fn": s.get_ema_avg_fn(0.7)},
    "exponential of lists": lambda s: {"multi_avg_fn": s.get_ema_multi_avg_fn(0.7)},
    "own": lambda s: {"avg_fn": lambda a, b, n: 0.25 * a + 0.75 * b},
}


@pytest.mark.parametrize("average", AVERAGES)
def test_averages(average: str) -> None:
    here, there = models()
    a = ours.AveragedModel(here, **AVERAGES[average](ours))
    b = theirs.AveragedModel(there, **AVERAGES[average](theirs))
    rng = np.random.default_rng(0)
    for _ in range(4):
        for p, q in zip(here.parameters(), there.parameters(), strict=True):
            value = rng.standard_normal(p.shape).astype(np.float32)
            p.array[...] = value
            q.data[...] = torch.tensor(value)
        x = rng.standard_normal((5, 3)).astype(np.float32)
        here(ox.tensor(x))
        there(torch.tensor(x))
        a.update_parameters(here)
        b.update_parameters(there)
        same(a, b)
    batches = [rng.standard_normal((n, 3)).astype(np.float32) for n in (4, 6, 2)]
    ours.update_bn([ox.tensor(x) for x in batches], a)
    theirs.update_bn([torch.tensor(x) for x in batches], b)
    same(a, b)
    assert a.module[1].momentum == 0.1


def test_buffers_too() -> None:
    here, there = models()
    a = ours.AveragedModel(here, use_buffers=True)
    b = theirs.AveragedModel(there, use_buffers=True)
    for _ in range(3):
        for m, n in [(here, there)]:
            m[1].running_mean.array += 1
            n[1].running_mean += 1
        a.update_parameters(here)
        b.update_parameters(there)
    same(a, b)


@pytest.mark.parametrize(
    "options", [{}, {"anneal_epochs": 3, "anneal_strategy": "linear"}, {"anneal_epochs": 0}], ids=str
)
def test_rates(options: dict[str, Any]) -> None:
    mine = optim.SGD([nn.Parameter(np.ones(2, np.float32))], lr=0.5)
    yours = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.5)
    one, other = ours.SWALR(mine, 0.05, **options), theirs.SWALR(yours, 0.05, **options)
    for _ in range(14):
        assert mine.param_groups[0]["lr"] == pytest.approx(yours.param_groups[0]["lr"], rel=1e-9)
        yours.step()
        one.step()
        other.step()


def test_both_refuse() -> None:
    here, there = models()
    for room, model, optimizer in (
        (ours, here, optim.SGD(here.parameters(), 0.1)),
        (theirs, there, torch.optim.SGD(there.parameters(), 0.1)),
    ):
        with pytest.raises(ValueError):
            room.get_ema_avg_fn(1.5)
        with pytest.raises(ValueError):
            room.SWALR(optimizer, 0.1, anneal_strategy="sine")
        with pytest.raises((ValueError, AssertionError)):
            room.AveragedModel(model, avg_fn=room.get_swa_avg_fn(), multi_avg_fn=room.get_swa_multi_avg_fn())
