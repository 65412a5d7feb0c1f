"""Each kind of draw has numbers of its own; the version of the stream; streams of version 1 go on as before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ox
from ox import distributions, nn, train
from ox.core import random_stream
from ox.core.operator import OPS
from ox.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)  # fmt: skip
from ox.data.transforms import rng
from ox.errors import ArgumentError
from ox.nn import functional as F
from ox.random import stream_version
from ox.train import rng_state

N = 1500


@pytest.fixture(autouse=True)
def newest_again() -> Iterator[None]:
    with stream_version(stream_version.current):
        yield


class Position(Dataset):
    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        return index


class Noise(Position):
    def __getitem__(self, index: int) -> Any:
        return np.random.rand(), random.random(), ox.rand(1).item()


def trainer(validation: float | None) -> train.Trainer:
    data = TensorDataset(np.zeros((N, 1), np.float32), np.arange(N))
    return train.Trainer(nn.Linear(1, 2), nn.CrossEntropyLoss(), None, data, validation, seed=3)


def split_of_trainer() -> Any:
    return np.isin(np.arange(N), trainer(0.5).data.train.indices)


def in_a_worker(column: int) -> Any:
    """What the first batch of a loader draws in its worker, from the seed of that batch."""
    loader = DataLoader(Noise(), N, num_workers=1)
    return next(iter(loader))[column]


def positions(order: Any) -> Any:
    return np.argsort(np.asarray(list(order)))


def filled(name: str, *arguments: Any) -> Callable[[], Any]:
    return lambda: getattr(ox.empty(N), name)(*arguments)


def initial(name: str, shape: tuple[int, ...] = (N, 1), *arguments: Any) -> Callable[[], Any]:
    return lambda: getattr(nn.init, name)(ox.empty(shape), *arguments)


def sampled(name: str, *arguments: Any) -> Callable[[], Any]:
    def draw() -> Any:
        made = getattr(distributions, name)(*arguments).sample((N,)).numpy()
        return made.reshape(N, -1)[:, 0]

    return draw


def operator(name: str, *arguments: Any, **attributes: Any) -> Callable[[], Any]:
    return lambda: np.asarray(OPS[name](*arguments, **attributes)).reshape(-1)


HALF = ox.full((N,), 0.5)
SAMPLERS: dict[str, Callable[[], Any]] = {
    "rand": lambda: ox.rand(N),
    "randn": lambda: ox.randn(N),
    "randint": lambda: ox.randint(0, 5, (N,)),
    "a wide randint": lambda: ox.randint(0, 1 << 30, (N,)),
    "randperm": lambda: ox.randperm(N),
    "positions of randperm": lambda: positions(ox.randperm(N)),
    "bernoulli": lambda: ox.bernoulli(HALF),
    "multinomial": lambda: ox.multinomial(ox.ones(5), N, replacement=True),
    "multinomial, distinct": lambda: positions(ox.multinomial(ox.ones(N), N)),
    "exponential_": filled("exponential_"),
    "cauchy_": filled("cauchy_"),
    "geometric_": filled("geometric_", 0.3),
    "log_normal_": filled("log_normal_"),
    "poisson": lambda: ox.poisson(ox.full((N,), 4.0)),
    "binomial": lambda: ox.binomial(ox.full((N,), 9.0), HALF),
    "gumbel_softmax": lambda: F.gumbel_softmax(ox.zeros(N, 2))[:, 0],
    "dropout": lambda: F.dropout(ox.ones(N)),
    "dropout1d": lambda: F.dropout1d(ox.ones(N, 1, 2))[:, 0, 0],
    "alpha_dropout": lambda: F.alpha_dropout(ox.ones(N), training=True),
    "dropout of attention": lambda: F.scaled_dot_product_attention(
        ox.zeros(1, N, 4), ox.zeros(1, 1, 4), ox.ones(1, 1, 4), dropout_p=0.5
    )[0, :, 0],
    "rrelu": lambda: F.rrelu(-ox.ones(N), training=True),
    "init.uniform_": initial("uniform_"),
    "init.normal_": initial("normal_"),
    "init.trunc_normal_": initial("trunc_normal_"),
    "init.sparse_": initial("sparse_", (N, 1), 0.5),
    "random_split": lambda: positions(random_split(Position(), [N, 0])[0].indices),
    "split of a trainer": split_of_trainer,
    "order of a trainer": lambda: positions(x for batch in trainer(None).batches() for x in batch[1].tolist()),
    "shuffle": lambda: positions(x for batch in DataLoader(Position(), 50, shuffle=True) for x in batch.tolist()),
    "RandomSampler with replacement": lambda: list(RandomSampler(Position(), replacement=True)),
    "WeightedRandomSampler": lambda: list(WeightedRandomSampler(np.ones(N), N)),
    "DistributedSampler": lambda: positions(DistributedSampler(Position(), 1, 0, seed=3)),
    "transform": lambda: rng.draw_many((N,), None),
    "NumPy": lambda: np.random.rand(N),
    "Python": lambda: [random.random() for _ in range(N)],
    "NumPy in a worker": lambda: in_a_worker(0),
    "Python in a worker": lambda: in_a_worker(1),
    "ox in a worker": lambda: in_a_worker(2),
    "RandomUniform": operator("RandomUniform", shape=[N]),
    "RandomNormal": operator("RandomNormal", shape=[N]),
    "Bernoulli": operator("Bernoulli", HALF),
    "Multinomial": operator("Multinomial", ox.zeros(1, 5), sample_size=N),
    "distributions.Bernoulli": sampled("Bernoulli", 0.5),
    "distributions.Beta": sampled("Beta", ox.tensor(2.0), ox.tensor(3.0)),
    "distributions.Binomial": sampled("Binomial", 9, ox.tensor(0.4)),
    "distributions.Categorical": sampled("Categorical", ox.ones(5)),
    "distributions.Cauchy": sampled("Cauchy", 0.0, 1.0),
    "distributions.Chi2": sampled("Chi2", 3.0),
    "distributions.Dirichlet": sampled("Dirichlet", ox.ones(3)),
    "distributions.Exponential": sampled("Exponential", 1.0),
    "distributions.FisherSnedecor": sampled("FisherSnedecor", 3.0, 4.0),
    "distributions.Gamma": sampled("Gamma", 2.0, 1.0),
    "distributions.Geometric": sampled("Geometric", 0.3),
    "distributions.Gumbel": sampled("Gumbel", 0.0, 1.0),
    "distributions.HalfCauchy": sampled("HalfCauchy", 1.0),
    "distributions.HalfNormal": sampled("HalfNormal", 1.0),
    "distributions.InverseGamma": sampled("InverseGamma", 2.0, 1.0),
    "distributions.Kumaraswamy": sampled("Kumaraswamy", 2.0, 3.0),
    "distributions.Laplace": sampled("Laplace", 0.0, 1.0),
    "distributions.LogNormal": sampled("LogNormal", 0.0, 1.0),
    "distributions.MultivariateNormal": sampled("MultivariateNormal", ox.zeros(2), ox.eye(2)),
    "distributions.NegativeBinomial": sampled("NegativeBinomial", 5, ox.tensor(0.5)),
    "distributions.Normal": sampled("Normal", 0.0, 1.0),
    "distributions.OneHotCategorical": sampled("OneHotCategorical", ox.ones(2)),
    "distributions.Pareto": sampled("Pareto", 1.0, 2.0),
    "distributions.Poisson": sampled("Poisson", 4.0),
    "distributions.RelaxedBernoulli": sampled("RelaxedBernoulli", ox.tensor(1.0), ox.tensor(0.5)),
    "distributions.RelaxedOneHotCategorical": sampled("RelaxedOneHotCategorical", ox.tensor(1.0), ox.ones(2)),
    "distributions.StudentT": sampled("StudentT", 3.0),
    "distributions.Uniform": sampled("Uniform", 0.0, 1.0),
    "distributions.Weibull": sampled("Weibull", 1.0, 2.0),
}


def standardized(draw: Callable[[], Any], seed: int) -> Any:
    """The ranks of what is drawn after one seed for all generators; equal values have one rank."""
    rng_state.seed(seed)
    values = np.asarray(draw()).reshape(-1).astype(np.float64)
    assert values.shape == (N,)
    ranks = np.unique(values, return_inverse=True)[1].astype(np.float64)
    return (ranks - ranks.mean()) / ranks.std()


def correlations(names: list[str]) -> list[str]:
    """The pairs that follow each other: by more than five deviations of what chance makes."""
    all_values = np.stack([standardized(SAMPLERS[name], seed=3) for name in names])
    r = np.triu(all_values @ all_values.T / N, 1) * np.sqrt(N)
    return [f"{names[i]} and {names[j]}: {r[i, j] / np.sqrt(N):.2f}" for i, j in np.argwhere(abs(r) > 5)]


def test_no_two_kinds_of_draws_follow_each_other() -> None:
    assert correlations(list(SAMPLERS)) == []


def test_the_first_version_had_one_key_for_all() -> None:
    with stream_version(1):
        names = ["rand", "bernoulli", "positions of randperm", "exponential_", "dropout", "distributions.Gumbel"]
        assert len(correlations(names)) == 15  # all of them


def test_kinds_have_words_of_their_own() -> None:
    words = {random_stream.word(kind) for kind in random_stream.KINDS}
    assert len(words) == len(random_stream.KINDS) and 0 not in words
    differences = [one ^ other for one in words for other in words if one != other]
    assert min(differences) >= 1 << 32  # so that two seeds below 2**32 never have one key


def test_a_larger_draw_has_one_kind() -> None:
    with random_stream.drawing("gamma"), random_stream.drawing("uniform"):
        assert random_stream.word("normal") == random_stream.word("gamma")
        inside = ox.rand(3, generator=ox.Generator(1)).tolist()
    assert inside != ox.rand(3, generator=ox.Generator(1)).tolist()


# -- version 1 --------------------------------------------------------------------------------------------------------


class Draws(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return index, int(np.random.randint(1000)), int(ox.randint(0, 1000, (1,)))


def test_a_state_without_a_version_continues_its_stream() -> None:
    """The numbers are those of the last commit with version 1."""
    generator = ox.Generator(7)
    generator.set_state({"seed": 3, "counter": 0})
    assert [x.hex() for x in ox.rand(2, generator=generator).tolist()] == [
        "0x1.a2209a0000000p-1",
        "0x1.de84700000000p-4",
    ]
    assert ox.randint(0, 100, (4,), generator=generator).tolist() == [26, 55, 22, 60]
    assert ox.randperm(6, generator=generator).tolist() == [1, 3, 5, 0, 2, 4]
    assert F.dropout(ox.ones(8), generator=generator).tolist() == [2, 2, 0, 0, 0, 0, 2, 0]
    assert ox.bernoulli(ox.full((6,), 0.5), generator=generator).tolist() == [1, 1, 1, 1, 0, 0]
    assert ox.poisson(ox.full((4,), 5.0), generator=generator).tolist() == [3, 7, 7, 5]
    assert generator.get_state() == {"seed": 3, "counter": 15, "version": 1}
    assert generator.clone_state().version == 1
    assert generator.manual_seed(3).get_state() == {"seed": 3, "counter": 0, "version": 3}


def test_a_loader_of_version_1_draws_as_before() -> None:
    generator = ox.Generator(0)
    generator.set_state({"seed": 5, "counter": 0})
    loader = DataLoader(Draws(), 2, shuffle=True, num_workers=1, generator=generator)
    epochs = [[[part.tolist() for part in batch] for batch in loader] for _ in range(2)]
    assert epochs == [
        [[[1, 0], [141, 183], [723, 925]], [[3, 2], [552, 655], [406, 764]]],
        [[[3, 2], [384, 374], [99, 305]], [[1, 0], [343, 964], [787, 168]]],
    ]


def test_the_switch() -> None:
    with stream_version(1):
        assert ox.Generator(1).version == 1
    assert ox.Generator(1).version == 3
    stream_version(1)
    assert ox.manual_seed(1).version == 1
    stream_version(3)
    for wrong in (0, 4, True, "1"):
        with pytest.raises(ArgumentError, match="no such version"):
            stream_version(wrong)
    with pytest.raises(ArgumentError, match="no such version"):
        ox.random.set_state({"seed": 1, "counter": 0, "version": 4})
    ox.manual_seed(0)


def test_weighted_sampling_with_and_without_replacement() -> None:
    """Independent; in an older state, which may be that of a run, as it was."""

    def orders(**state: int) -> tuple[list[int], list[int]]:
        generator = ox.Generator(5)
        found = []
        for replacement in (True, False):
            generator.set_state({"seed": 5, "counter": 0, **state})
            found.append(list(WeightedRandomSampler([1.0] * 400, 400, replacement, generator)))
        return found[0], found[1]

    def correlation(drawn: list[int], order: list[int]) -> float:
        return abs(np.corrcoef(np.array(drawn)[order], np.arange(400))[0, 1])

    drawn, order = orders(version=3)
    assert correlation(drawn, order) < 0.2
    old_drawn, old_order = orders(version=2)
    assert old_drawn == drawn and old_order != order
    assert correlation(old_drawn, old_order) > 0.99
    assert old_order[:5] == [13, 25, 44, 15, 265]


# -- one kind has the same bits everywhere ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_compiled_and_eager_bits(version: int) -> None:
    def noisy(x: ox.Tensor) -> tuple[ox.Tensor, ...]:
        return (
            F.dropout(x, 0.3), F.dropout1d(x[:, None], 0.5), x + ox.randn_like(x), ox.rand(4, 600) * x,
            ox.bernoulli(x * 0.5),
            ox.randint(0, 9, (5,)) + x.sum().long(), ox.multinomial(x[0], 3, True),
        )  # fmt: skip

    x, generator = ox.ones(4, 600), ox.random.default_generator
    with stream_version(version):
        ox.manual_seed(4)
        eager = [[y.numpy() for y in noisy(x)] for _ in range(3)]
        state = generator.get_state()
        compiled = ox.compile(noisy)
        ox.manual_seed(4)
        for expected in eager:
            assert all(np.array_equal(y.numpy(), e) for y, e in zip(compiled(x), expected, strict=True))
        assert generator.get_state() == state
    ox.manual_seed(0)
