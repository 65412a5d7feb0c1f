"""Random numbers: seeds, states, distributions, recordings."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError, DTypeError, OxError, ShapeError
from ox.graph.record.recording import record
from ox.graph.replay import replay


def draws(generator: ox.Generator | None = None) -> list[object]:
    p = ox.full((5,), 0.5)
    return [
        ox.rand(3, generator=generator).tolist(),
        ox.randn(2, 2, generator=generator).tolist(),
        ox.randint(0, 10, (4,), generator=generator).tolist(),
        ox.randint(0, 10**6, (4,), generator=generator).tolist(),
        ox.randperm(6, generator=generator).tolist(),
        ox.bernoulli(p, generator=generator).tolist(),
        ox.rand_like(p, generator=generator).tolist(),
        ox.randn_like(p, generator=generator).tolist(),
    ]


def test_one_seed_one_stream() -> None:
    ox.manual_seed(7)
    first = draws()
    assert draws() != first
    ox.manual_seed(7)
    assert draws() == first
    assert draws(ox.Generator(7)) == first
    assert draws(ox.Generator(8)) != first
    assert ox.Generator(7).manual_seed(9).initial_seed() == 9


def test_streams_of_neighbouring_seeds_do_not_overlap() -> None:
    rows = np.stack([ox.rand(1000, generator=ox.Generator(seed)).numpy() for seed in range(8)])
    assert np.unique(rows).size > 7990
    assert abs(np.corrcoef(rows) - np.eye(8)).max() < 0.15


def test_unseeded_generators_differ() -> None:
    assert ox.Generator().get_state() != ox.Generator().get_state()


@pytest.mark.parametrize("seed", [0, -1, 2**64 - 1, 2**70])
def test_any_int_is_a_seed(seed: int) -> None:
    assert ox.rand(2, generator=ox.Generator(seed)).tolist() == ox.rand(2, generator=ox.Generator(seed)).tolist()


def test_a_state_is_kept_and_put_back() -> None:
    generator = ox.Generator(3)
    ox.rand(5, generator=generator)
    state = generator.get_state()
    assert state["seed"] == 3
    expected = draws(generator)
    generator.set_state(state)
    assert draws(generator) == expected
    other = ox.Generator(0)
    other.set_state(state)
    assert draws(other) == expected
    kept = ox.random.get_state()
    expected = draws()
    ox.random.set_state(kept)
    assert draws() == expected


@pytest.mark.parametrize("state", [{}, None, {"seed": 1}, {"seed": 1, "counter": -1}, {"seed": "a", "counter": 0}])
def test_no_state(state: object) -> None:
    generator = ox.Generator(1)
    before = generator.get_state()
    with pytest.raises(ArgumentError, match="no state"):
        generator.set_state(state)
    assert generator.get_state() == before


def test_uniform_numbers() -> None:
    x = ox.rand(200_000, generator=ox.Generator(0)).numpy()
    assert x.dtype == np.float32
    assert 0 <= x.min() < 1e-4
    assert 1 - 1e-4 < x.max() < 1
    assert x.mean() == pytest.approx(0.5, abs=0.003)
    assert x.var() == pytest.approx(1 / 12, abs=0.001)
    counts = np.histogram(x, 100, (0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 160  # chi square of 99 degrees: 148 is one in a thousand
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.01


def test_normal_numbers() -> None:
    x = ox.randn(200_000, generator=ox.Generator(0), dtype=ox.float64).numpy()
    assert x.mean() == pytest.approx(0, abs=0.01)
    assert x.std() == pytest.approx(1, abs=0.01)
    assert (x**3).mean() == pytest.approx(0, abs=0.03)
    assert (x**4).mean() == pytest.approx(3, abs=0.1)
    assert np.isfinite(x).all()


@pytest.mark.parametrize("dtype", [ox.float16, ox.bfloat16, ox.float32, ox.float64], ids=str)
def test_uniform_numbers_are_below_one_in_every_type(dtype: ox.dtypes.DType) -> None:
    x = ox.rand(50_000, dtype=dtype, generator=ox.Generator(1))
    assert x.dtype == dtype
    assert x.max().item() < 1
    assert x.min().item() >= 0
    assert x.double().mean().item() == pytest.approx(0.5, abs=0.01)


@rows("low, high", [(0, 2), (-3, 3), (10, 11), (0, 4096), (0, 4097), (-5, 10**6), (0, 3 << 22), (0, 1 << 32)])
def test_randint(low: int, high: int) -> None:
    x = ox.randint(low, high, (40_000,), generator=ox.Generator(0)).numpy()
    assert x.dtype == np.int64
    assert x.min() >= low
    assert x.max() < high
    assert x.mean() == pytest.approx((low + high - 1) / 2, abs=max(0.02 * (high - low), 1e-9))
    if high - low <= 6:
        assert set(x.tolist()) == set(range(low, high))
    else:  # halves, quarters and parities as often as they should
        assert (x % 2 == 0).mean() == pytest.approx(0.5, abs=0.02)
        assert (x < low + (high - low) // 4).mean() == pytest.approx(0.25, abs=0.02)


def test_randint_forms() -> None:
    assert ox.randint(5, (2, 3)).shape == (2, 3)
    assert ox.randint(1, 5, [2]).shape == (2,)
    for dtype in (ox.float32, ox.int8, ox.uint8):
        x = ox.randint(0, 5, (100,), dtype=dtype)
        assert x.dtype == dtype
        assert set(x.tolist()) <= {0, 1, 2, 3, 4}


def test_randperm() -> None:
    for n in (0, 1, 2, 1000):
        order = ox.randperm(n)
        assert order.dtype == ox.int64
        assert sorted(order.tolist()) == list(range(n))
    first = [ox.randperm(3).tolist() for _ in range(600)]
    for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]):
        assert 60 < first.count(order) < 145


def test_bernoulli() -> None:
    p = ox.tensor([0.0, 0.3, 1.0]).unsqueeze(1).expand(3, 20_000)
    for dtype in (ox.float32, ox.float16):
        x = ox.bernoulli(p.to(dtype))
        assert x.dtype == dtype
        assert x.float().mean(1).tolist() == pytest.approx([0, 0.3, 1], abs=0.02)
        assert x[0].max().item() == 0
        assert x[2].min().item() == 1


@rows(
    "call, error",
    [
        ("ox.randint(5, 5, (2,))", ArgumentError), ("ox.randint(0, 2**33, (2,))", ArgumentError),
        ("ox.rand(-1)", ShapeError),
        ("ox.rand(1.5)", ShapeError), ("ox.randn(2, dtype=ox.int64)", DTypeError), ("ox.randperm(-1)", ArgumentError),
        ("ox.rand_like(ox.ones(2).long())", DTypeError), ("ox.randint(0, 5, (-1,))", ShapeError),
    ],
)  # fmt: skip
def test_refused(call: str, error: type[OxError]) -> None:
    with pytest.raises(error):
        eval(call, {"ox": ox})


def test_draws_are_not_differentiated_but_can_be_leaves() -> None:
    x = ox.rand(3, requires_grad=True)
    assert x.is_leaf
    assert ox.autograd.grad(ox.bernoulli(x).sum(), x)[0].tolist() == [0, 0, 0]
    assert not ox.rand_like(x).requires_grad


def test_a_recorded_draw_is_the_eager_one() -> None:
    """Key and counter are constants of the graph, so a replay draws what the recording drew."""

    def noisy(x: ox.Tensor) -> tuple[ox.Tensor, ...]:
        return x + ox.randn_like(x), x * ox.rand(2, 3), ox.randint(0, 100, (5,)).float() * x.sum()

    x = ox.ones(2, 3)
    ox.manual_seed(11)
    eager = [y.tolist() for y in noisy(x)]
    state = ox.random.get_state()
    ox.manual_seed(11)
    graph = record(noisy, {"x": x})
    assert ox.random.get_state() == {"seed": 11, "counter": 0, "version": 3}  # recording does not use the stream up
    assert [y.tolist() for y in replay(graph, [x])] == eager
    assert [y.tolist() for y in noisy(x)] == eager
    assert ox.random.get_state() == state


def test_threads_with_generators_of_their_own() -> None:
    found: dict[int, object] = {}

    def work(seed: int) -> None:
        found[seed] = draws(ox.Generator(seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: draws(ox.Generator(seed)) for seed in range(4)}


def test_a_generator_may_be_given_a_device() -> None:
    on_device, first, plain = ox.Generator(device="cpu"), ox.Generator("cpu"), ox.Generator(7)
    for generator in (on_device, first):
        assert generator.device == "cpu"
        assert ox.rand(3, generator=generator.manual_seed(7)).tolist() == ox.rand(3, generator=plain).tolist()
        plain.manual_seed(7)
    assert first.seed() == first.initial_seed() != 7
