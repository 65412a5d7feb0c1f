"""Counts: Poisson, Geometric, Binomial, NegativeBinomial, Multinomial."""

from __future__ import annotations

from typing import Any

from ox import functions as F
from ox.autograd.grad_mode import no_grad
from ox.distributions import constraints
from ox.distributions.categorical import Categorical, log_of, one_of
from ox.distributions.continuous import within
from ox.distributions.distribution import Distribution, require, together
from ox.distributions.gamma import Gamma
from ox.distributions.transforms import softplus
from ox.errors import ArgumentError
from ox.functions.creation import arange
from ox.functions.dtype_queries import finfo
from ox.random import is_torch_compatible
from ox.tensors.random_sampling import binomial, poisson

__all__ = ["Binomial", "Geometric", "Multinomial", "NegativeBinomial", "Poisson"]


class Poisson(Distribution):
    """How often something happens that happens at a rate. `torch.distributions.Poisson`. Raises ArgumentError for a
    negative rate."""

    arg_constraints = {"rate": constraints.nonnegative}  # noqa: RUF012
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = together(rate)
        super().__init__(self.rate.shape, (), validate_args)
        if self._validate_args:
            require("rate", self.rate, self.rate >= 0, "numbers of 0 or more")

    @property
    def mean(self) -> Any:
        return self.rate

    @property
    def mode(self) -> Any:
        return self.rate.floor()

    @property
    def variance(self) -> Any:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return poisson(F.broadcast_to(self.rate, self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        return F.xlogy(value, self.rate) - self.rate - F.lgamma(value + 1)


def _chances(name: str, probs: Any, logits: Any, *others: Any) -> tuple[Any, ...]:
    """Probabilities, log-odds, and other parameters beside them."""
    one_of(name, probs, logits)
    given, *rest = together(probs if logits is None else logits, *others)
    if logits is None:
        return (given, log_of(given) - log_of(1 - given), *rest)
    return (F.sigmoid(given), given, *rest)


class Geometric(Distribution):
    """How often a trial fails before it succeeds. `torch.distributions.Geometric`.

    Args:
        probs: of success, above 0.
        logits: its log-odds instead.
    """

    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self.probs, self.logits = _chances("Geometric", probs, logits)
        super().__init__(self.probs.shape, (), validate_args)
        if self._validate_args:
            require("probs", self.probs, (self.probs > 0) & (self.probs <= 1), "numbers above 0, up to 1")

    @property
    def mean(self) -> Any:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Any:
        return F.zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Any = ()) -> Any:
        shape, tiny = self._extended_shape(sample_shape), finfo(self.probs.dtype).tiny
        with no_grad():
            if is_torch_compatible():
                u = self.probs.new_empty(shape).uniform_(tiny, 1)
            else:
                u = within(shape, self.probs)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        probs = F.where((self.probs == 1) & (value == 0), 0.0, self.probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Any:
        p = self.probs
        bits = F.clamp(self.logits, min=0) - self.logits * p + F.log1p((-self.logits.abs()).exp())
        return bits / p


class Binomial(Distribution):
    """How many of `total_count` trials succeed. `torch.distributions.Binomial`.

    Args:
        total_count: whole numbers.
        probs: of success.
        logits: its log-odds instead.
    """

    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.probs, self.logits, self.total_count = _chances("Binomial", probs, logits, total_count)
        super().__init__(self.probs.shape, (), validate_args)
        if self._validate_args:
            require("probs", self.probs, (self.probs >= 0) & (self.probs <= 1), "numbers from 0 to 1")

    @property
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return F.clamp(((self.total_count + 1) * self.probs).floor(), max=self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(F.broadcast_to(self.total_count, shape), F.broadcast_to(self.probs, shape))

    def log_prob(self, value: Any) -> Any:
        n, x = self.total_count, self.logits
        ways = F.lgamma(n + 1) - F.lgamma(value + 1) - F.lgamma(n - value + 1)
        return ways + value * x - n * F.clamp(x, min=0) - n * F.log1p((-x.abs()).exp())

    def entropy(self) -> Any:
        log = self.log_prob(self.enumerate_support(False))
        return -(log.exp() * log).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        """0 to the count, [count + 1, batch]. Raises ArgumentError for different counts."""
        most = int(self.total_count.max().item())
        if int(self.total_count.min().item()) != most:
            raise ArgumentError("the support is enumerated for one total_count")
        values = arange(most + 1, dtype=self.probs.dtype, device=self.probs.device)
        values = values.reshape(-1, *[1] * len(self._batch_shape))
        return F.broadcast_to(values, (most + 1, *self._batch_shape)) if expand else values


class NegativeBinomial(Distribution):
    """How many trials succeed before `total_count` fail. `torch.distributions.NegativeBinomial`.

    Args:
        total_count: numbers above 0, that need not be whole.
        probs: of success, below 1.
        logits: its log-odds instead.
    """

    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.probs, self.logits, self.total_count = _chances("NegativeBinomial", probs, logits, total_count)
        super().__init__(self.probs.shape, (), validate_args)
        if self._validate_args:
            require("probs", self.probs, (self.probs >= 0) & (self.probs < 1), "numbers from 0, below 1")
            require("total_count", self.total_count, self.total_count >= 0, "numbers of 0 or more")

    @property
    def mean(self) -> Any:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Any:
        return F.clamp(((self.total_count - 1) * self.logits.exp()).floor(), min=0)

    @property
    def variance(self) -> Any:
        return self.mean / F.sigmoid(-self.logits)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return poisson(Gamma(self.total_count, (-self.logits).exp(), False).sample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        n = self.total_count
        trials = -n * softplus(self.logits) - value * softplus(-self.logits)
        ways = F.lgamma(n + value) - F.lgamma(value + 1) - F.lgamma(n)
        return trials + F.where(n + value == 0, 0.0, ways)


class Multinomial(Distribution):
    """How often each class comes in `total_count` draws. `torch.distributions.Multinomial`.

    Args:
        total_count: one whole number.
        probs: [batch, K]; they are divided by their sum.
        logits: their logarithms, up to a constant, instead.
    """

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise ArgumentError("total_count is one whole number", got=type(total_count).__name__)
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.probs.shape[-1:], validate_args)

    @property
    def probs(self) -> Any:
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        return self._categorical.logits

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        places = drawn.permute(*range(1, drawn.ndim), 0)
        counts = F.zeros_like(self.probs).detach().expand(self._extended_shape(sample_shape)).clone()
        return counts.scatter_add_(-1, places, F.ones_like(places).to(counts.dtype))

    def log_prob(self, value: Any) -> Any:
        logits, value = F.broadcast_tensors(self.logits, value)
        logits = F.where((value == 0) & (logits == -float("inf")), 0.0, logits)
        return F.lgamma(value.sum(-1) + 1) - F.lgamma(value + 1).sum(-1) + (logits * value).sum(-1)
