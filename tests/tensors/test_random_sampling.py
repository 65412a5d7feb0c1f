"""Random numbers of given distributions: moments, bounds, repeatability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError, CallError, DTypeError, RecordError
from ox.graph.record.recording import record
from ox.graph.replay import replay

COUNT = 20_000

# what is drawn into 20,000 places, its mean and deviation
DRAWS: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "uniform_": (lambda x: x.uniform_(-1, 3), 1, 4 / 12**0.5),
    "normal_": (lambda x: x.normal_(2, 3), 2, 3),
    "exponential_": (lambda x: x.exponential_(2.0), 0.5, 0.5),
    "log_normal_": (lambda x: x.log_normal_(0, 0.5), np.exp(0.125), 0.604),
    "geometric_": (lambda x: x.geometric_(0.25), 4, 12**0.5),
    "bernoulli_": (lambda x: x.bernoulli_(0.3), 0.3, 0.21**0.5),
    "random_": (lambda x: x.random_(10), 4.5, 8.25**0.5),
    "normal": (lambda x: ox.normal(x + 1, 2.0), 1, 2),
    "poisson": (lambda x: ox.poisson(x + 4), 4, 2),
    "binomial": (lambda x: ox.binomial(x + 10, x + 0.5), 5, 2.5**0.5),
}


@rows("name", DRAWS)
def test_moments_and_repeatability(name: str) -> None:
    draw, mean, deviation = DRAWS[name]
    ox.manual_seed(5)
    first = draw(ox.zeros(COUNT)).numpy().copy()
    second = draw(ox.zeros(COUNT)).numpy()
    assert first.mean() == pytest.approx(mean, abs=5 * deviation / COUNT**0.5)
    assert first.std() == pytest.approx(deviation, rel=0.05)
    assert (first != second).any()
    ox.manual_seed(5)
    assert (draw(ox.zeros(COUNT)).numpy() == first).all()


def test_multinomial_follows_the_weights() -> None:
    ox.manual_seed(1)
    weights = ox.tensor([0.0, 1.0, 3.0, 0.0])
    drawn = ox.multinomial(weights, COUNT, replacement=True).bincount(minlength=4).numpy() / COUNT
    assert drawn == pytest.approx([0, 0.25, 0.75, 0], abs=0.02)
    pairs = ox.multinomial(weights.expand(2000, 4), 2)
    assert (pairs.sort(1).values == ox.tensor([1, 2])).all()
    assert pairs[:, 0].float().mean().item() == pytest.approx(1.75, abs=0.05)


def test_median_of_cauchy() -> None:
    ox.manual_seed(2)
    x = ox.zeros(COUNT).cauchy_(3.0, 2.0).numpy()
    assert np.median(x) == pytest.approx(3, abs=0.1)
    assert np.quantile(x, 0.75) == pytest.approx(5, abs=0.2)


def test_a_recorded_draw_is_the_eager_one() -> None:
    def step(p: Any) -> Any:
        return ox.multinomial(p, 2), ox.empty(3).exponential_(), p.bernoulli()

    p = ox.tensor([[0.2, 0.3, 0.5]])
    ox.manual_seed(9)
    graph = record(step, {"p": p})
    expected = step(p)
    for got, want in zip(replay(graph, [p]), expected, strict=True):
        assert got.tolist() == want.tolist()


def test_refused() -> None:
    with pytest.raises(ArgumentError, match="std must be 0 or more"):
        ox.normal(0.0, ox.tensor([-1.0]))
    with pytest.raises(ArgumentError, match="std must be 0 or more"):
        ox.zeros(2).normal_(0, -1)
    with pytest.raises(ArgumentError, match="from must not be greater"):
        ox.zeros(2).uniform_(2, 1)
    with pytest.raises(CallError, match="no argument 'low'"):
        ox.zeros(2).uniform_(low=1)
    with pytest.raises(ArgumentError, match="weights"):
        ox.multinomial(ox.tensor([0.0, 1.0]), 2)
    with pytest.raises(ArgumentError, match="16,777,217 weights in a row"):
        ox.multinomial(ox.ones(2**24 + 1), 1)
    with pytest.raises(ArgumentError, match="above 0"):
        ox.zeros(2).cauchy_(0, 0)
    with pytest.raises(ArgumentError, match="above 0"):
        ox.zeros(2).log_normal_(0, 0)
    with pytest.raises(DTypeError, match="fills floats"):
        ox.zeros(2, dtype=ox.int64).normal_()
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        ox.bernoulli(ox.tensor([2.0]))
    with pytest.raises(RecordError, match="poisson"):
        record(ox.poisson, {"x": ox.ones(2)})
