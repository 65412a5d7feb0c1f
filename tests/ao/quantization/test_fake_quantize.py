"""FakeQuantize, its observers and its gradients, against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox.ao import quantization as q
from ox.errors import ArgumentError


def rounded(x: Any, scale: Any, zero: Any, low: int, high: int) -> Any:
    return (np.clip(np.rint(x / scale) + zero, low, high) - zero) * scale


def test_a_range_becomes_a_scale_and_a_zero_point() -> None:
    observer = q.MinMaxObserver()
    observer(ox.tensor([-1.0, 2.0]))
    observer(ox.tensor([0.5, 4.1]))
    scale, zero_point = observer.calculate_qparams()
    assert scale.item() == pytest.approx(5.1 / 255) and zero_point.item() == 50 and zero_point.dtype == ox.uint8
    symmetric = q.MinMaxObserver(dtype=ox.int8, symmetric=True)
    symmetric(ox.tensor([-1.0, 2.0]))
    scale, zero_point = symmetric.calculate_qparams()
    assert scale.item() == pytest.approx(2 / 127.5) and zero_point.item() == 0


def test_the_zero_is_always_exact() -> None:
    observer = q.MinMaxObserver()
    observer(ox.tensor([3.0, 5.0]))
    scale, zero_point = observer.calculate_qparams()
    assert scale.item() == pytest.approx(5 / 255) and zero_point.item() == 0


def test_a_moving_average() -> None:
    observer = q.MovingAverageMinMaxObserver(averaging_constant=0.1)
    observer(ox.tensor([-1.0, 1.0]))
    observer(ox.tensor([-3.0, 2.0]))
    assert observer.min_val.item() == pytest.approx(-1.2) and observer.max_val.item() == pytest.approx(1.1)


def test_channels_have_ranges_of_their_own() -> None:
    observer = q.PerChannelMinMaxObserver(dtype=ox.int4)
    observer(ox.tensor([[1.0, -2.0], [0.1, 0.3]]))
    scale, zero_point = observer.calculate_qparams()
    assert scale.numpy() == pytest.approx(np.array([2, 0.3]) / 7.5) and zero_point.dtype == ox.int4


@pytest.mark.parametrize("channels", [False, True])
def test_gradients_pass_straight_through(channels: bool) -> None:
    """Inside the range; they are 0 beyond. A learnable scale gets the gradient of Esser et al."""
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 40)).astype(np.float32) * 3
    g = random.normal(size=x.shape).astype(np.float32)
    scale = np.float32([0.02, 0.03, 0.01])[:, None] if channels else np.float32(0.02)
    if channels:
        fake: Any = q.LearnableFakeQuantize(q.PerChannelMinMaxObserver, channels=3)
        zero, low, high = 0, -128, 127
    else:
        fake, zero, low, high = q.LearnableFakeQuantize(), 90, 0, 255
    fake.load_state_dict(
        fake.state_dict()
        | {
            "scale": ox.tensor(scale.reshape(fake.scale.shape)),
            "zero_point": ox.full(fake.scale.shape, zero).to(fake.dtype),
            "started": ox.tensor(True),
        }
    )
    tensor = ox.tensor(x).requires_grad_()
    y = fake(tensor)
    y.backward(ox.tensor(g))
    assert np.allclose(y.detach().numpy(), rounded(x, scale, zero, low, high), atol=1e-6)
    places = np.rint(x / scale) + zero
    inside = (places >= low) & (places <= high)
    assert 0.1 < inside.mean() < 0.9 and tensor.grad is not None
    assert np.allclose(tensor.grad.numpy(), g * inside)
    slope = np.where(inside, np.rint(x / scale) - x / scale, np.clip(places, low, high) - zero)
    per_scale = (g * slope).sum(1) if channels else (g * slope).sum()
    count = 40 if channels else 120
    assert np.allclose(fake.scale.grad.numpy(), per_scale / np.sqrt(count * high), rtol=1e-4)


def test_a_scale_that_learns_finds_a_better_one() -> None:
    """It begins at the whole range, of which one value in 1,000 is far outside."""
    x = np.random.default_rng(0).normal(size=4000).astype(np.float32)
    x[::1000] *= 12
    fake = q.LearnableFakeQuantize(q.MinMaxObserver, dtype=ox.int4, symmetric=True)
    tensor = ox.tensor(x)

    def error() -> Any:
        return (fake(tensor) - tensor).square().mean()

    first = error().item()
    optimizer = ox.optim.Adam(fake.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        error().backward()
        optimizer.step()
    assert error().item() < 0.7 * first


def test_evaluation_changes_nothing() -> None:
    fake = q.FakeQuantize()
    fake(ox.tensor([-1.0, 1.0]))
    before = {name: value.numpy().copy() for name, value in fake.state_dict().items()}
    fake.eval()(ox.tensor([-100.0, 100.0]))
    assert all(np.array_equal(value.numpy(), before[name]) for name, value in fake.state_dict().items())


def test_switches() -> None:
    model = ox.nn.Sequential(q.FakeQuantize())
    x = ox.tensor([-1.0, 0.1, 1.0])
    model(x)
    model.apply(q.disable_observer)
    model(10 * x)
    scale = model[0].scale.item()
    assert scale == pytest.approx(2 / 255)
    model.apply(q.disable_fake_quant)
    assert model(10 * x).tolist() == (10 * x).tolist()
    model.apply(q.enable_fake_quant).apply(q.enable_observer)
    assert model(10 * x).tolist() != (10 * x).tolist() and model[0].scale.item() > scale


def test_what_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"cannot be quantized to this type[^~]*float32"):
        q.FakeQuantize(dtype=ox.float32)
    with pytest.raises(ArgumentError, match="has seen no values"):
        q.FakeQuantize().calculate_qparams()
    with pytest.raises(ArgumentError, match="number of channels"):
        q.LearnableFakeQuantize(q.PerChannelMinMaxObserver)
