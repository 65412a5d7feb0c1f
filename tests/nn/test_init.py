"""Initial values: distributions, and that the generator decides them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError
from ox.nn import init

WIDE = (200, 300)


def drawn(name: str, *args: Any, shape: tuple[int, ...] = WIDE, **kwargs: Any) -> Any:
    ox.manual_seed(0)
    return getattr(init, name)(ox.zeros(*shape), *args, **kwargs).array


@pytest.mark.parametrize(
    ("name", "kwargs", "bound"),
    [
        ("uniform_", {"a": -2.0, "b": 2.0}, 2.0),
        ("xavier_uniform_", {"gain": 2.0}, 2 * math.sqrt(6 / 500)),
        ("kaiming_uniform_", {}, math.sqrt(6 / 300)),
        ("kaiming_uniform_", {"a": math.sqrt(5)}, math.sqrt(1 / 300)),
        ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(6 / 200)),
    ],
)
def test_uniform(name: str, kwargs: Any, bound: float) -> None:
    values = drawn(name, **kwargs)
    assert abs(values).max() <= bound and abs(values).max() > 0.999 * bound
    assert abs(values.mean()) < 0.01 * bound and values.std() == pytest.approx(bound / math.sqrt(3), rel=0.01)


@pytest.mark.parametrize(
    ("name", "kwargs", "std"),
    [
        ("normal_", {"std": 3.0}, 3.0),
        ("xavier_normal_", {}, math.sqrt(2 / 500)),
        ("kaiming_normal_", {"nonlinearity": "relu"}, math.sqrt(2 / 300)),
    ],
)
def test_normal(name: str, kwargs: Any, std: float) -> None:
    values = drawn(name, **kwargs) / std
    assert abs(values.mean()) < 0.02 and values.std() == pytest.approx(1, rel=0.01)
    assert np.mean(abs(values) < 1) == pytest.approx(0.6827, abs=0.01)


def test_trunc_normal() -> None:
    values = drawn("trunc_normal_", std=0.5, a=-0.5, b=1.0)
    assert values.min() >= -0.5 and values.max() <= 1.0
    inside = np.random.default_rng(0).standard_normal(200_000) * 0.5
    inside = inside[(inside > -0.5) & (inside < 1)]
    assert values.mean() == pytest.approx(inside.mean(), abs=0.01) and values.std() == pytest.approx(
        inside.std(), rel=0.02
    )
    x = np.linspace(-0.999999, 0.999999, 1001)
    assert np.allclose(np.vectorize(math.erf)(init.erfinv(x)), x, atol=1e-6)


def test_constants_and_orthogonal() -> None:
    assert (drawn("constant_", 3.0) == 3).all() and (drawn("ones_") == 1).all() and (drawn("zeros_") == 0).all()
    for shape in ((4, 9), (9, 4), (6, 3, 2)):
        q = drawn("orthogonal_", gain=2.0, shape=shape).reshape(shape[0], -1)
        small = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
        assert np.allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_defaults_of_layers() -> None:
    ox.manual_seed(0)
    linear, conv = nn.Linear(64, 500), nn.Conv2d(4, 200, 4)
    for layer in (linear, conv):
        assert abs(layer.weight.array).max() == pytest.approx(1 / 8, rel=0.01)
        assert abs(layer.bias.array).max() == pytest.approx(1 / 8, rel=0.05)
    assert nn.Embedding(300, 100).weight.array.std() == pytest.approx(1, rel=0.02)
    assert (nn.Embedding(3, 2, padding_idx=1).weight.array[1] == 0).all()
    attention = nn.MultiheadAttention(64, 2)
    assert abs(attention.in_proj_weight.array).max() == pytest.approx(math.sqrt(6 / 256), rel=0.01)
    assert (attention.in_proj_bias.array == 0).all() and (attention.out_proj.bias.array == 0).all()
    ox.manual_seed(0)
    assert (nn.Linear(64, 500).weight.array == linear.weight.array).all()


def test_values_are_written_in_place() -> None:
    p = nn.Linear(2, 2).weight
    memory = p.array
    assert init.ones_(p) is p and p.array is memory and p.requires_grad and p.is_leaf
    double = ox.zeros(3, 3, dtype=ox.float64)
    assert init.normal_(double).dtype == ox.float64
    with pytest.raises(ArgumentError, match="two dimensions"):
        init.xavier_uniform_(ox.zeros(3))
    with pytest.raises(ArgumentError, match="no gain"):
        init.calculate_gain("swish")
