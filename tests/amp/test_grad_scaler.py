"""GradScaler: skips what overflows, grows and shrinks, and refuses a wrong order of calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, DTypeError, TrainError


def one(value: float = 1.0) -> tuple[nn.Parameter, Any]:
    p = nn.Parameter(ox.tensor([value, value]))
    return p, ox.optim.SGD([p], lr=0.5)


def test_a_step_unscales_and_steps() -> None:
    p, optimizer = one()
    scaler = ox.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    for k, (scale, tracker) in enumerate([(1024.0, 1), (2048.0, 0), (2048.0, 1), (4096.0, 0)]):
        optimizer.zero_grad()
        loss = (p * ox.tensor([1.0, 2.0])).sum()
        scaled = scaler.scale(loss)
        assert scaled.item() == loss.item() * scaler.get_scale()
        scaled.backward()
        assert scaler.step(optimizer) is None
        scaler.update()
        np.testing.assert_allclose(p.array, [1 - 0.5 * (k + 1), 1 - (k + 1)])
        assert (scaler.get_scale(), scaler._get_growth_tracker()) == (scale, tracker)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_step_that_overflows_is_skipped(bad: float) -> None:
    p, optimizer = one()
    scaler = ox.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    scaler.scale(p.sum()).backward()
    p.grad.array[1] = bad
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [1.0, 1.0] and scaler.get_scale() == 4.0 and scaler._get_growth_tracker() == 0


def test_gradients_whose_sum_overflows_are_finite() -> None:
    p, optimizer = one()
    scaler = ox.GradScaler("cpu", init_scale=1.0)
    scaler.scale(p.sum()).backward()
    p.grad = ox.tensor([3e38, 3e38])
    scaler.unscale_(optimizer)
    assert scaler._stages[id(optimizer)].found is False


def test_step_returns_what_the_optimizer_returns() -> None:
    p, optimizer = one()
    optimizer.step = lambda *args, **kwargs: (args, kwargs)
    scaler = ox.GradScaler("cpu")
    scaler.scale(p.sum()).backward()
    assert scaler.step(optimizer, 1, a=2) == ((1,), {"a": 2})


def test_unscale_before_clipping() -> None:
    p, optimizer = one()
    scaler = ox.GradScaler("cpu", init_scale=2.0**10)
    scaler.scale((p * ox.tensor([3.0, 4.0])).sum()).backward()
    scaler.unscale_(optimizer)
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == pytest.approx(5.0)
    scaler.step(optimizer)  # does not divide once more
    np.testing.assert_allclose(p.array, [1 - 0.5 * 0.6, 1 - 0.5 * 0.8], rtol=1e-6)


def test_several_optimizers_and_losses() -> None:
    (p, first), (q, second) = one(), one()
    scaler = ox.GradScaler("cpu", init_scale=4.0)
    losses = scaler.scale([p.sum(), (q.sum(),)])
    assert isinstance(losses, list) and isinstance(losses[1], tuple)
    (losses[0] + losses[1][0]).backward()
    q.grad.array[0] = np.inf
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert p.tolist() == [0.5, 0.5] and q.tolist() == [1.0, 1.0] and scaler.get_scale() == 2.0
    assert [t.item() for t in scaler.scale(iter([p.sum()]))] == [2.0]


def test_a_float16_loss_is_scaled_in_float32() -> None:
    x = ox.tensor([0.25]).half().requires_grad_()
    y = ox.GradScaler("cpu", init_scale=2.0**17).scale(x)  # 2**17 is no float16, the product is
    assert y.dtype == ox.float16 and y.item() == 2.0**15
    assert ox.GradScaler("cpu").scale(ox.tensor(0.0).half()).item() == 0.0


@pytest.mark.parametrize("dtype", [ox.float16, ox.bfloat16], ids=str)
def test_a_loss_of_no_dimensions_stays_in_float32(dtype: Any) -> None:
    x = ox.ones((), dtype=dtype).requires_grad_()
    y = ox.GradScaler("cpu").scale(x)  # 65536 is no float16
    assert y.dtype == ox.float32 and y.item() == 65536.0
    (y / 65536).backward()
    assert x.grad.dtype == dtype and x.grad.item() == 1.0
    assert ox.GradScaler("cpu").scale(ox.ones(1, dtype=dtype)).dtype == dtype


def test_a_device_may_have_a_number() -> None:
    assert ox.GradScaler("cpu:0").is_enabled()
    if not ox.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            assert not ox.GradScaler("cuda:0").is_enabled()


def test_sparse_gradients() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    optimizer = ox.optim.SGD(table.parameters(), lr=1.0)
    scaler = ox.GradScaler("cpu", init_scale=16.0)
    before = table.weight.detach().clone()
    scaler.scale(table(ox.tensor([1, 1, 3])).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_allclose((before - table.weight.detach()).array[:, 0], [0, 2, 0, 1, 0], rtol=1e-5, atol=1e-6)


def test_the_order_of_calls() -> None:
    p, optimizer = one()
    scaler = ox.GradScaler("cpu")
    for call in (lambda: scaler.unscale_(optimizer), lambda: scaler.step(optimizer), scaler.update):
        with pytest.raises(ArgumentError, match=r"before scale\(\)"):
            call()
    loss = scaler.scale(p.sum())
    with pytest.raises(ArgumentError, match="no gradients"):
        scaler.step(optimizer)
    scaler = ox.GradScaler("cpu")
    loss = scaler.scale(p.sum())
    with pytest.raises(ArgumentError, match="without a step"):
        scaler.update()
    loss.backward()
    scaler.unscale_(optimizer)
    with pytest.raises(ArgumentError, match="already been called on this optimizer"):
        scaler.unscale_(optimizer)
    with pytest.raises(ArgumentError, match="no closure"):
        scaler.step(optimizer, closure=lambda: None)
    scaler.step(optimizer)
    with pytest.raises(ArgumentError, match="already been called since"):
        scaler.step(optimizer)
    with pytest.raises(ArgumentError, match="after step"):
        scaler.unscale_(optimizer)
    scaler.update()
    scaler.update(new_scale=2.0)
    assert scaler.get_scale() == 2.0
    scaler.update(ox.tensor([8.0]))
    assert scaler.get_scale() == 8.0
    with pytest.raises(ArgumentError, match="one element"):
        scaler.update(ox.ones(2))
    with pytest.raises(ArgumentError, match="scale takes tensors"):
        scaler.scale(3.0)


def test_bad_arguments() -> None:
    with pytest.raises(ArgumentError, match="above 1"):
        ox.GradScaler("cpu", growth_factor=1.0)
    with pytest.raises(ArgumentError, match="below 1"):
        ox.GradScaler("cpu", backoff_factor=1.0)
    with pytest.raises(ArgumentError, match="no device"):
        ox.GradScaler("tpu")
    p = nn.Parameter(ox.ones(2).half())
    optimizer = ox.optim.SGD([p], lr=1.0)
    scaler = ox.GradScaler("cpu", init_scale=2.0)
    scaler.scale(p.sum()).backward()
    with pytest.raises(DTypeError, match="float16 gradients"):
        scaler.step(optimizer)


def test_disabled_it_passes_everything_through() -> None:
    p, optimizer = one()
    scaler = ox.GradScaler("cpu", enabled=False)
    loss = p.sum()
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0 and not scaler.is_enabled()
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.5, 0.5] and scaler.state_dict() == {}
    scaler.load_state_dict({})
    if not ox.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            assert not ox.GradScaler().is_enabled()


def test_state_goes_on_where_it_was() -> None:
    p, optimizer = one()
    scaler = ox.GradScaler("cpu", init_scale=32.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=2)

    def iterate(scaler: Any, bad: bool = False) -> float:
        optimizer.zero_grad()
        scaler.scale(p.sum()).backward()
        if bad:
            p.grad.array[0] = np.inf
        scaler.step(optimizer)
        scaler.update()
        return float(scaler.get_scale())

    iterate(scaler, bad=True)
    iterate(scaler)
    state = scaler.state_dict()
    assert state == {
        "scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 2, "_growth_tracker": 1,
    }  # fmt: skip
    other = ox.GradScaler("cpu")
    other.load_state_dict(state)
    assert other.state_dict() == state and iterate(other) == iterate(scaler) == 32.0
    with pytest.raises(ArgumentError, match="is empty"):
        other.load_state_dict({})
    with pytest.raises(ArgumentError, match="lacks a key"):
        other.load_state_dict({"scale": 1.0})


def run(scaler: Any, bad: Any, steps: int) -> int:
    """How many iterations went well before the collapse."""
    p, optimizer = one()
    for k in range(steps):
        optimizer.zero_grad()
        scaler.scale(p.sum()).backward()
        if bad(k):
            p.grad.array[0] = np.nan
        scaler.step(optimizer)
        scaler.update()
    return steps


def test_a_collapse_is_told() -> None:
    with pytest.raises(TrainError) as caught:
        run(ox.GradScaler("cpu"), lambda k: True, 100)
    told = str(caught.value)
    # from 2**16 the 33rd skipped step goes below 2**-16
    assert "the last 33 steps were all skipped" in told and "bfloat16" in told and "learning rate" in told
    assert "test_grad_scaler.py" in told and "scaler.update()" in told


def test_no_honest_run_is_told_so() -> None:
    # a long search for the scale, a low one from the start, and skips that come alone
    run(ox.GradScaler("cpu", init_scale=2.0**24), lambda k: k < 30, 40)
    run(ox.GradScaler("cpu", init_scale=2.0**-20), lambda k: k < 19, 30)
    run(ox.GradScaler("cpu", init_scale=2.0), lambda k: k % 3 == 0, 200)
