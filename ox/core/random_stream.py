"""The version of ox's random numbers, and the kinds of draws: each kind has a key of its own.

With one key for all, two kinds of draws from equal seeds see the same uniform numbers: a permutation would sort what
`rand` gave. So the key of a generator is combined with the kind of the draw (domain separation).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

from ox.errors import ArgumentError

# 1: one key for all kinds, no seed drawn for the workers of a loader
# 2: the same key for weighted sampling with and without replacement
NEWEST = 3

# The position is part of the numbers: new kinds are appended. The names of distributions are those of their classes.
KINDS = (
    "bits", "uniform", "normal", "integers", "bernoulli", "permutation", "multinomial", "multinomial_distinct",
    "exponential", "cauchy", "geometric", "log_normal", "poisson", "binomial", "gamma", "gumbel_softmax",
    "dropout", "feature_dropout", "alpha_dropout", "attention_dropout", "rrelu", "fractional_max_pool",
    "initial_uniform", "initial_normal", "initial_truncated_normal", "initial_sparse", "pruning",
    "split", "validation_split", "shuffle", "sampling", "weighted_sampling", "distributed_shuffle", "transform",
    "worker_seed",
    "onnx_uniform", "onnx_normal", "onnx_bernoulli", "onnx_multinomial", "onnx_dropout",
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "Dirichlet", "ExpRelaxedCategorical",
    "Exponential", "FisherSnedecor", "Gamma", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma",
    "Kumaraswamy", "Laplace", "LogNormal", "LogitRelaxedBernoulli", "LowRankMultivariateNormal", "MixtureSameFamily",
    "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical", "Pareto", "Poisson",
    "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution", "Uniform", "Weibull",
    "weighted_sampling_distinct",
)  # fmt: skip
_STEP = 0xD1342543DE82EF95  # odd, so that kinds differ; its high word is not 0, so that small seeds never meet
_WORDS = {kind: (number + 1) * _STEP % (1 << 64) for number, kind in enumerate(KINDS)}

_outer: ContextVar[str | None] = ContextVar("kind", default=None)


def word(kind: str, version: int = NEWEST) -> int:
    """What the 64-bit key of a generator is combined with by XOR, for a kind of `KINDS`."""
    kind = _outer.get() or kind
    if version == 2 and kind == "weighted_sampling_distinct":
        kind = "weighted_sampling"
    return _WORDS[kind]


@contextmanager
def drawing(kind: str) -> Iterator[None]:
    """All draws inside are of this kind: they are parts of a larger one."""
    if _outer.get() is not None:
        yield
        return
    token = _outer.set(kind)
    try:
        yield
    finally:
        _outer.reset(token)


class stream_version:  # a switch that is called like a function, as `torch_compatible` is
    """Which version of ox's random numbers the generators that are seeded from here on have; as a context manager only
    inside the block.

    Version 3 is the default. Version 1 has one key for all kinds of draws, version 2 one for weighted sampling with and
    without replacement; ox drew so before. A state of a generator and a run that do not name their version are of
    version 1; all continue with their own.

    Args:
        version: 1, 2 or 3.

    Raises:
        ArgumentError: another version.
    """

    current: ClassVar[int] = NEWEST

    def __init__(self, version: int) -> None:
        self._version, self._before = checked(version), stream_version.current
        stream_version.current = self._version

    def __enter__(self) -> None:
        stream_version.current = self._version

    def __exit__(self, *_: Any) -> None:
        stream_version.current = self._before


def checked(version: Any) -> int:
    """The version, if this ox has it."""
    if type(version) is not int or not 1 <= version <= NEWEST:
        raise ArgumentError(
            "there is no such version of the random numbers", expected=f"1 to {NEWEST}", got=repr(version),
            hint="a newer ox, if a newer one wrote it",
        )  # fmt: skip
    return version
