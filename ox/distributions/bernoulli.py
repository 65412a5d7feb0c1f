"""Yes or no."""

from __future__ import annotations

from typing import Any

from ox import functions as F
from ox.autograd.grad_mode import no_grad
from ox.distributions import constraints
from ox.distributions.categorical import log_of, one_of
from ox.distributions.distribution import Distribution, require, together
from ox.functions.creation import arange
from ox.random import bernoulli

__all__ = ["Bernoulli"]


class Bernoulli(Distribution):
    """1 with a probability, else 0. `torch.distributions.Bernoulli`.

    Args:
        probs: of a 1.
        logits: their log-odds instead.

    Raises:
        ArgumentError: both or neither, or values that cannot be.
    """

    has_enumerate_support = True
    support = constraints.boolean

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        one_of("Bernoulli", probs, logits)
        (given,) = together(probs if logits is None else logits)
        super().__init__(given.shape, (), validate_args)
        if self._validate_args and logits is None:
            require("probs", given, (given >= 0) & (given <= 1), "numbers from 0 to 1")
        elif self._validate_args:
            require("logits", given, given == given, "numbers")
        if logits is None:
            self.probs, self.logits = given, log_of(given) - log_of(1 - given)
        else:
            self.logits, self.probs = given, F.sigmoid(given)

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return F.where(self.probs == 0.5, float("nan"), (self.probs >= 0.5).to(self.probs.dtype))

    def enumerate_support(self, expand: bool = True) -> Any:
        """0 and 1, [2, batch]."""
        values = arange(2, dtype=self.probs.dtype, device=self.probs.device).reshape(-1, *[1] * len(self._batch_shape))
        return F.broadcast_to(values, (2, *self._batch_shape)) if expand else values

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return bernoulli(F.broadcast_to(self.probs, self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        x = self.logits
        return x * value - F.clamp(x, min=0) - F.log1p((-x.abs()).exp())

    def entropy(self) -> Any:
        return -self.log_prob(self.probs)
