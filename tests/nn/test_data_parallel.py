"""`nn.DataParallel` on one device: the module, under the name that checkpoints of PyTorch have."""

from __future__ import annotations

import pytest

import ox
from ox import nn
from ox.core import warn_once
from ox.nn.parallel.data_parallel import DataParallel


def test_it_runs_the_module() -> None:
    plain = nn.Linear(3, 2)
    model = nn.DataParallel(plain)
    x = ox.randn(4, 3)
    assert bool((model(x) == plain(x)).all()) and model.module is plain
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    model(x).sum().backward()
    assert plain.weight.grad is not None
    assert bool((nn.parallel.data_parallel(plain, (x,)) == plain(x)).all())
    assert nn.parallel.DataParallel is nn.DataParallel is DataParallel


def test_several_devices_are_not_used_and_it_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warn_once, "_warned", set())
    with pytest.warns(UserWarning, match=r"DataParallel changes nothing: one device computes.*ox launch"):
        nn.DataParallel(nn.ReLU(), device_ids=[0, 1])
    nn.DataParallel(nn.ReLU(), device_ids=[0, 1])
    nn.DataParallel(nn.ReLU(), device_ids=[0]).eval()
