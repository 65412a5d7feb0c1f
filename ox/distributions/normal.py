"""The normal distribution, and that of its exponential."""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

from ox import functions as F
from ox.autograd.grad_mode import no_grad
from ox.distributions import constraints
from ox.distributions.distribution import Distribution, require, together
from ox.random import normal
from ox.tensors.random_sampling import beside

__all__ = ["LogNormal", "Normal"]


class Normal(Distribution):
    """Normal numbers of mean `loc` and deviation `scale`. `torch.distributions.Normal`.

    Raises:
        ArgumentError: a deviation that is not positive, or a parameter that is not a number.
    """

    has_rsample = True
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = together(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)
        if self._validate_args:
            require("loc", self.loc, self.loc == self.loc, "numbers")
            require("scale", self.scale, self.scale > 0, "positive numbers")

    @property
    def mean(self) -> Any:
        return self.loc

    mode = mean

    @property
    def stddev(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        return self.scale**2

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():  # as in PyTorch, also if a subclass overrides `rsample`
            return Normal.rsample(self, sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        drawn = normal(self._extended_shape(sample_shape), self.loc.dtype)
        return self.loc + beside(drawn, self.loc) * self.scale

    def log_prob(self, value: Any) -> Any:
        return -((value - self.loc) ** 2) / (2 * self.variance) - self.scale.log() - log(sqrt(2 * pi))

    def cdf(self, value: Any) -> Any:
        return 0.5 * (1 + F.erf((value - self.loc) / (self.scale * sqrt(2))))

    def icdf(self, value: Any) -> Any:
        return self.loc + self.scale * F.erfinv(2 * value - 1) * sqrt(2)

    def entropy(self) -> Any:
        return 0.5 + 0.5 * log(2 * pi) + self.scale.log()


class LogNormal(Distribution):
    """The exponential of normal numbers. `torch.distributions.LogNormal`."""

    has_rsample = True
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._normal = Normal(loc, scale, validate_args)
        self.loc, self.scale = self._normal.loc, self._normal.scale
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def variance(self) -> Any:
        return (self.scale**2).expm1() * (2 * self.loc + self.scale**2).exp()

    @property
    def mode(self) -> Any:
        return (self.loc - self.scale**2).exp()

    def cdf(self, value: Any) -> Any:
        return self._normal.cdf(value.log())

    def icdf(self, value: Any) -> Any:
        return self._normal.icdf(value).exp()

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._normal.rsample(sample_shape).exp()

    def log_prob(self, value: Any) -> Any:
        logarithm = value.log()
        return self._normal.log_prob(logarithm) - logarithm

    def entropy(self) -> Any:
        return self._normal.entropy() + self.loc
