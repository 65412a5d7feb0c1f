"""A mixture of distributions of one family."""

from __future__ import annotations

from typing import Any

from ox import functions as F
from ox.autograd.grad_mode import no_grad
from ox.distributions.categorical import Categorical
from ox.distributions.distribution import Distribution
from ox.errors import ArgumentError, ShapeError

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Samples of one of K components, which a Categorical chooses. `torch.distributions.MixtureSameFamily`.

    Args:
        mixture_distribution: a Categorical of batch [batch] and K classes.
        component_distribution: of batch [batch, K].

    Raises:
        ArgumentError: no Categorical.
        ShapeError: batches that do not meet.
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ArgumentError("mixture_distribution must be a Categorical", got=type(mixture_distribution).__name__)
        batch = component_distribution.batch_shape[:-1]
        count = component_distribution.batch_shape[-1:]
        own, classes = mixture_distribution.batch_shape, mixture_distribution.logits.shape[-1]
        fits = len(own) <= len(batch) and all(a in (1, b) for a, b in zip(reversed(own), reversed(batch), strict=False))
        if tuple(count) != (classes,) or not fits:
            raise ShapeError(
                "the batch shape of the components does not fit the Categorical",
                expected=f"components {[*own, classes]}",
                got=str(list(component_distribution.batch_shape)),
            )
        self._mixture, self._component = mixture_distribution, component_distribution
        super().__init__(batch, component_distribution.event_shape, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        count = self._component.batch_shape[-1]
        return MixtureSameFamily(
            self._mixture.expand(batch_shape), self._component.expand((*batch_shape, count)), self._validate_args
        )

    @property
    def mixture_distribution(self) -> Categorical:
        return self._mixture

    @property
    def component_distribution(self) -> Distribution:
        return self._component

    @property
    def support(self) -> Any:
        return self._component.support

    def _weights(self) -> Any:
        return self._mixture.probs.reshape(*self._mixture.probs.shape, *[1] * len(self._event_shape))

    def _over(self, x: Any) -> Any:
        return x.sum(-1 - len(self._event_shape))

    @property
    def mean(self) -> Any:
        return self._over(self._weights() * self._component.mean)

    @property
    def variance(self) -> Any:
        weights, dim = self._weights(), -1 - len(self._event_shape)
        away = self._component.mean - self.mean.unsqueeze(dim)
        return self._over(weights * self._component.variance) + self._over(weights * away**2)

    def _wide(self, value: Any) -> Any:
        return value.unsqueeze(-1 - len(self._event_shape))

    def log_prob(self, value: Any) -> Any:
        each = self._component.log_prob(self._wide(value))
        return F.logsumexp(each + F.log_softmax(self._mixture.logits, -1), -1)

    def cdf(self, value: Any) -> Any:
        return (self._component.cdf(self._wide(value)) * self._mixture.probs).sum(-1)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            batch, events = [*sample_shape, *self._batch_shape], len(self._event_shape)
            chosen = F.broadcast_to(self._mixture.sample(sample_shape), batch).reshape(*batch, *[1] * (events + 1))
            drawn = self._component.sample(sample_shape)
            places = F.broadcast_to(chosen, (*batch, 1, *self._event_shape))
            return F.gather(drawn, len(batch), places).squeeze(len(batch))
