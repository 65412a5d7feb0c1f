"""Autocast and GradScaler on a GPU; on a machine without one these skip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox import nn

F = nn.functional
pytestmark = pytest.mark.gpu


def f(*shape: int) -> ox.Tensor:
    return ox.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32)).to("cuda")


@pytest.mark.parametrize("dtype", [ox.float16, ox.bfloat16], ids=str)
def test_each_device_has_its_own_region(dtype: Any) -> None:
    a, b = f(4, 4), ox.ones(4, 4)
    with ox.autocast("cuda", dtype):
        assert (a @ a).dtype == dtype and (b @ b).dtype == ox.float32
        assert F.softmax(a @ a, -1).dtype == ox.float32 and ox.is_autocast_enabled()
        with ox.autocast("cpu"):
            assert (a @ a).dtype == dtype and (b @ b).dtype == ox.bfloat16
    with ox.autocast("cpu"):
        assert (a @ a).dtype == ox.float32
    with ox.cuda.amp.autocast():
        assert (a @ a).dtype == ox.float16


@pytest.mark.parametrize("dtype", [ox.float16, ox.bfloat16], ids=str)
def test_a_step_gives_what_the_cpu_gives(dtype: Any) -> None:
    def step(device: str) -> list[Any]:
        ox.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(144, 5)).to(
            device
        )
        optimizer = ox.optim.SGD(model.parameters(), lr=0.1)
        scaler = ox.GradScaler(device, init_scale=256.0)
        with ox.autocast(device, dtype):
            loss = F.cross_entropy(model(f(4, 1, 8, 8).to(device)), ox.tensor([0, 1, 2, 3]).to(device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return [loss.item(), *(p.detach().cpu().numpy() for p in model.parameters())]

    for a, b in zip(step("cuda"), step("cpu"), strict=True):
        np.testing.assert_allclose(a, b, rtol=4e-2, atol=4e-2)


def test_an_overflow_is_found_on_the_device() -> None:
    p = nn.Parameter(f(3))
    optimizer = ox.optim.SGD([p], lr=1.0)
    scaler = ox.GradScaler("cuda", init_scale=4.0)
    before = p.detach().cpu().numpy().copy()
    scaler.scale((p * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert np.array_equal(p.detach().cpu().numpy(), before) and scaler.get_scale() == 2.0
