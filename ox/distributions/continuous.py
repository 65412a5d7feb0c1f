"""Even, exponential and Laplace numbers."""

from __future__ import annotations

from math import log
from typing import Any

from ox import functions as F
from ox.distributions import constraints
from ox.distributions.distribution import Distribution, require, together
from ox.random import is_torch_compatible, uniform
from ox.tensors.random_sampling import HALF_STEP, beside
from ox.tensors.tensor import Tensor

__all__ = ["Exponential", "Laplace", "Uniform"]


def within(shape: tuple[int, ...], like: Tensor) -> Any:
    """Numbers in (0, 1)."""
    return beside(uniform(shape, like.dtype), like) + HALF_STEP


class Uniform(Distribution):
    """Numbers in [low, high), all as likely. `torch.distributions.Uniform`. Raises ArgumentError unless low < high."""

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = together(low, high)
        super().__init__(self.low.shape, (), validate_args)
        if self._validate_args:
            require("low", self.low, self.low < self.high, "numbers below high")

    @property
    def mean(self) -> Any:
        return (self.high + self.low) / 2

    @property
    def variance(self) -> Any:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Any:
        drawn = beside(uniform(self._extended_shape(sample_shape), self.low.dtype), self.low)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Any) -> Any:
        inside = (value >= self.low) & (value < self.high)
        return F.where(inside, -(self.high - self.low).log(), -float("inf"))

    def cdf(self, value: Any) -> Any:
        return F.clamp((value - self.low) / (self.high - self.low), 0, 1)

    def icdf(self, value: Any) -> Any:
        return value * (self.high - self.low) + self.low

    @property
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    def entropy(self) -> Any:
        return (self.high - self.low).log()


class Exponential(Distribution):
    """Waiting times of a positive rate. `torch.distributions.Exponential`. Raises ArgumentError for another."""

    has_rsample = True
    support = constraints.nonnegative

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = together(rate)
        super().__init__(self.rate.shape, (), validate_args)
        if self._validate_args:
            require("rate", self.rate, self.rate > 0, "positive numbers")

    @property
    def mean(self) -> Any:
        return 1 / self.rate

    @property
    def variance(self) -> Any:
        return self.rate**-2

    def rsample(self, sample_shape: Any = ()) -> Any:
        if is_torch_compatible():
            return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate
        return -within(self._extended_shape(sample_shape), self.rate).log() / self.rate

    def log_prob(self, value: Any) -> Any:
        return self.rate.log() - self.rate * value

    def cdf(self, value: Any) -> Any:
        return 1 - (-self.rate * value).exp()

    def icdf(self, value: Any) -> Any:
        return -(-value).log1p() / self.rate

    @property
    def mode(self) -> Any:
        return F.zeros_like(self.rate)

    def entropy(self) -> Any:
        return 1 - self.rate.log()


class Laplace(Distribution):
    """Numbers whose density falls off exponentially on both sides. `torch.distributions.Laplace`. Raises ArgumentError
    for a scale that is not positive."""

    has_rsample = True
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = together(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)
        if self._validate_args:
            require("scale", self.scale, self.scale > 0, "positive numbers")

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return 2 * self.scale**2

    def rsample(self, sample_shape: Any = ()) -> Any:
        if is_torch_compatible():
            edge = F.finfo(self.loc.dtype).eps - 1
            u = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(edge, 1)
        else:
            u = 2 * within(self._extended_shape(sample_shape), self.loc) - 1
        return self.loc - self.scale * u.sign() * F.log1p(-u.abs())

    def log_prob(self, value: Any) -> Any:
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Any) -> Any:
        away = value - self.loc
        return 0.5 - 0.5 * away.sign() * F.expm1(-away.abs() / self.scale)

    def icdf(self, value: Any) -> Any:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * F.log1p(-2 * term.abs())

    @property
    def mode(self) -> Any:
        return self.loc

    def entropy(self) -> Any:
        return 1 + log(2) + self.scale.log()
