"""Autocast and GradScaler on a GPU; on a machine without one these skip."""

from __future__ import annotations

import sys
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


def scaled_gradients(*gradients: Any) -> tuple[ox.GradScaler, ox.optim.Optimizer]:
    """A scaler of scale 4 and an optimizer whose gradients are scaled by it."""
    params = [nn.Parameter(ox.zeros(*g.shape, device="cuda", dtype=g.dtype)) for g in gradients]
    scaler, optimizer = ox.GradScaler("cuda", init_scale=4.0), ox.optim.SGD(params, lr=1.0)
    scaler.scale(f(1).sum())
    for p, g in zip(params, gradients, strict=True):
        p.grad = g * 4
    return scaler, optimizer


@pytest.mark.parametrize("bad", [None, float("inf"), float("-inf"), float("nan")])
def test_unscaling_looks_at_every_element(bad: float | None) -> None:
    gradients = [f(3000), f(2, 3).t(), f(4).to(ox.bfloat16), f(5).double()]
    if bad is not None:
        gradients[0][2999] = bad
    scaler, optimizer = scaled_gradients(*gradients)
    scaler.unscale_(optimizer)
    for p, g in zip(optimizer.param_groups[0]["params"], gradients, strict=True):
        assert np.array_equal(p.grad.tolist(), g.tolist(), equal_nan=True)
    scaler.step(optimizer)
    scaler.update()
    taken = bad is None
    assert scaler.get_scale() == (4.0 if taken else 2.0)
    for p, g in zip(optimizer.param_groups[0]["params"], gradients, strict=True):
        assert p.tolist() == ((-g).tolist() if taken else ox.zeros(*g.shape).tolist())


def test_gradients_that_share_memory_are_divided_once_each() -> None:
    shared = f(6)
    scaler, optimizer = scaled_gradients(f(3), f(3))
    a, b = optimizer.param_groups[0]["params"]
    both = shared * 4
    a.grad, b.grad = both[:4][:3], both[2:5]
    wanted = shared.tolist()
    scaler.unscale_(optimizer)
    assert b.grad.tolist()[1:] == pytest.approx(wanted[3:5])


def test_the_scale_grows_on_the_device() -> None:
    p = nn.Parameter(f(3))
    optimizer = ox.optim.AdamW([p], lr=0.1)
    scaler = ox.GradScaler("cuda", init_scale=4.0, growth_interval=2)
    scales = []
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(p.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [4.0, 8.0, 8.0, 16.0] and optimizer.state[p]["step"].item() == 4
    again = ox.GradScaler("cuda")
    again.load_state_dict(scaler.state_dict())
    assert again.state_dict() == scaler.state_dict()


def test_an_optimizer_that_cannot_skip_on_the_device_waits_for_the_flag() -> None:
    p = nn.Parameter(f(3, 3))
    optimizer = ox.optim.Adafactor([p], lr=0.1)
    scaler = ox.GradScaler("cuda", init_scale=4.0)
    before = p.tolist()
    for factor in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (p.tolist() == before) == (factor != 1.0)
    assert scaler.get_scale() == 2.0


@pytest.mark.parametrize("dtype", [ox.float32, ox.float64, ox.bfloat16, ox.float16], ids=str)
@pytest.mark.parametrize("most", [0.5, 1e6])
def test_clipping_gives_what_the_cpu_gives(most: float, dtype: Any) -> None:
    def clipped(device: str) -> list[Any]:
        params = [nn.Parameter(ox.zeros(*shape, dtype=dtype, device=device)) for shape in ((40, 30), (7,), ())]
        for p in params:
            p.grad = f(*p.shape).to(dtype).to(device)
        norm = nn.utils.clip_grad_norm_(params, most)
        return [norm, *(p.grad for p in params)]

    tolerance = {ox.float32: 1e-6, ox.float64: 1e-12}.get(dtype, 2e-2)
    for a, b in zip(clipped("cuda"), clipped("cpu"), strict=True):
        assert a.dtype == b.dtype and a.device.type == "cuda"
        np.testing.assert_allclose(a.cpu().float().numpy(), b.float().numpy(), rtol=tolerance, atol=1e-6)


def test_clipping_by_a_norm_that_is_not_finite() -> None:
    p = nn.Parameter(f(3))
    p.grad = ox.tensor([float("inf"), 1.0, 2.0]).to("cuda")
    with pytest.raises(ox.errors.GradientError, match="not finite"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert p.grad.tolist() == [float("inf"), 1.0, 2.0]
    nn.utils.clip_grad_norm_([p], 1.0)
    assert np.isnan(p.grad.tolist()[0]) and p.grad.tolist()[1:] == [0.0, 0.0]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_collapsed_scale_is_an_error_at_the_next_wait(compiled: bool) -> None:
    p = nn.Parameter(f(3))
    optimizer = ox.optim.SGD([p], lr=1.0, momentum=0.9)
    scaler = ox.GradScaler("cuda", init_scale=2.0**-10)

    def step(factor: Any) -> None:
        optimizer.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    run: Any = ox.compile(step) if compiled else step
    for _ in range(4):
        run(ox.ones(3, device="cuda"))
    wrong = ox.full((3,), float("nan"), device="cuda")
    with pytest.raises(ox.errors.TrainError, match=r"(?s)collapsed.*0 to 19.*20"):
        for _ in range(25):
            run(wrong)
            p.detach().sum().item()
    assert scaler._skipped == 20
    assert not compiled or "one CUDA graph" in str(run.explain())
    host_cuda = sys.modules.get("host_cuda")
    if host_cuda is not None:
        with host_cuda.counting() as done:
            run(ox.ones(3, device="cuda"))
        assert not done["waits"]
