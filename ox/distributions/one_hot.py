"""Classes as vectors with a single 1, and their relaxations (Jang et al., 2016; Maddison et al., 2016)."""

from __future__ import annotations

from typing import Any

from ox import functions as F
from ox.distributions import constraints
from ox.distributions.categorical import Categorical, one_hot, one_of
from ox.distributions.continuous import within
from ox.distributions.counts import _chances
from ox.distributions.distribution import Distribution, together
from ox.distributions.transformed import TransformedDistribution
from ox.distributions.transforms import ExpTransform, SigmoidTransform
from ox.functions.creation import eye
from ox.functions.dtype_queries import finfo
from ox.random import is_torch_compatible, uniform
from ox.tensors.random_sampling import beside

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough", "RelaxedBernoulli", "RelaxedOneHotCategorical"]


class OneHotCategorical(Distribution):
    """One of K classes as a vector [K]. `torch.distributions.OneHotCategorical`; arguments as `Categorical`."""

    has_enumerate_support = True
    support = constraints.one_hot

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.probs.shape[-1:], validate_args)

    @property
    def probs(self) -> Any:
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        return self._categorical.param_shape

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return one_hot(self._categorical.mode, self._event_shape[0], self.probs)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        return one_hot(self._categorical.sample(sample_shape), self._event_shape[0], self.probs)

    def log_prob(self, value: Any) -> Any:
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Any:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        """Every class, [K, batch, K]."""
        n = self._event_shape[0]
        values = eye(n, dtype=self.probs.dtype, device=self.probs.device)
        values = values.reshape(n, *[1] * len(self._batch_shape), n)
        return F.broadcast_to(values, (n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same, with samples whose gradient is that of the probabilities.
    `torch.distributions.OneHotCategoricalStraightThrough`."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


def _clamped(x: Any) -> Any:
    eps = finfo(x.dtype).eps
    return F.clamp(x, eps, 1 - eps)


class LogitRelaxedBernoulli(Distribution):
    """The log-odds of `RelaxedBernoulli`. `torch.distributions.relaxed_bernoulli.LogitRelaxedBernoulli`."""

    has_rsample = True
    support = constraints.real

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.probs, self.logits = _chances("RelaxedBernoulli", probs, logits)
        (self.temperature,) = together(temperature)
        super().__init__(self.probs.shape, (), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return LogitRelaxedBernoulli(self.temperature, logits=self.logits.expand(batch_shape), validate_args=False)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        drawn = uniform(shape, self.probs.dtype) if is_torch_compatible() else within(shape, self.probs)
        u, p = _clamped(beside(drawn, self.probs)), _clamped(self.probs)
        return (u.log() - (-u).log1p() + p.log() - (-p).log1p()) / self.temperature

    def log_prob(self, value: Any) -> Any:
        away = self.logits - value * self.temperature
        return self.temperature.log() + away - 2 * F.log1p(away.exp())


class _Relaxed(TransformedDistribution):
    """A transformed distribution with the parameters of its base."""

    @property
    def temperature(self) -> Any:
        return self.base_dist.temperature  # type: ignore[attr-defined]

    @property
    def probs(self) -> Any:
        return self.base_dist.probs  # type: ignore[attr-defined]

    @property
    def logits(self) -> Any:
        return self.base_dist.logits  # type: ignore[attr-defined]


class RelaxedBernoulli(_Relaxed):
    """Numbers between 0 and 1, the nearer to either the lower the temperature. `torch.distributions.RelaxedBernoulli`.

    Args:
        temperature: a positive number.
        probs: of 1.
        logits: their log-odds instead.
    """

    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits, validate_args)
        super().__init__(base, SigmoidTransform(), validate_args)


class ExpRelaxedCategorical(Distribution):
    """The logarithm of `RelaxedOneHotCategorical`. `torch.distributions.relaxed_categorical.ExpRelaxedCategorical`."""

    has_rsample = True
    support = constraints.real_vector

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of("RelaxedOneHotCategorical", probs, logits)
        self._categorical = Categorical(probs, logits, validate_args)
        (self.temperature,) = together(temperature)
        super().__init__(self._categorical.batch_shape, self._categorical.probs.shape[-1:], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        logits = self.logits.expand(*batch_shape, self._event_shape[0])
        return ExpRelaxedCategorical(self.temperature, logits=logits, validate_args=False)

    @property
    def probs(self) -> Any:
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        return self._categorical.logits

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        drawn = uniform(shape, self.probs.dtype) if is_torch_compatible() else within(shape, self.probs)
        gumbels = -(-_clamped(beside(drawn, self.probs)).log()).log()
        scores = (self.logits + gumbels) / self.temperature
        return scores - F.logsumexp(scores, -1, keepdim=True)

    def log_prob(self, value: Any) -> Any:
        k, t = self._event_shape[0], self.temperature
        logits, value = F.broadcast_tensors(self.logits, value)
        scale = F.lgamma(F.full_like(t, float(k))) - t.log() * (1 - k)
        score = logits - value * t
        return (score - F.logsumexp(score, -1, keepdim=True)).sum(-1) + scale


class RelaxedOneHotCategorical(_Relaxed):
    """Shares of K classes, the nearer to a single 1 the lower the temperature.
    `torch.distributions.RelaxedOneHotCategorical`; arguments as `RelaxedBernoulli`, of [batch, K]."""

    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args)
        super().__init__(base, ExpTransform(), validate_args)
