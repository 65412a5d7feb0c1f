"""Numbers with heavy tails: Cauchy and Pareto, and halves of normal and Cauchy numbers."""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

from ox import functions as F
from ox.distributions import constraints
from ox.distributions.continuous import Exponential, within
from ox.distributions.distribution import Distribution, require, together
from ox.distributions.normal import Normal
from ox.distributions.transformed import TransformedDistribution
from ox.distributions.transforms import AbsTransform, AffineTransform, ExpTransform
from ox.random import is_torch_compatible

__all__ = ["Cauchy", "HalfCauchy", "HalfNormal", "Pareto"]


class Cauchy(Distribution):
    """Numbers without mean or variance. `torch.distributions.Cauchy`. Raises ArgumentError for a scale that is not
    positive."""

    has_rsample = True
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = together(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)
        if self._validate_args:
            require("scale", self.scale, self.scale > 0, "positive numbers")

    @property
    def mean(self) -> Any:
        return F.full_like(self.loc, float("nan"))

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return F.full_like(self.loc, float("inf"))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        if is_torch_compatible():
            return self.loc + self.loc.new_empty(shape).cauchy_() * self.scale
        return self.loc + F.tan(pi * (within(shape, self.loc) - 0.5)) * self.scale

    def log_prob(self, value: Any) -> Any:
        return -log(pi) - self.scale.log() - F.log1p(((value - self.loc) / self.scale) ** 2)

    def cdf(self, value: Any) -> Any:
        return F.atan((value - self.loc) / self.scale) / pi + 0.5

    def icdf(self, value: Any) -> Any:
        return F.tan(pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Any:
        return log(4 * pi) + self.scale.log()


class _Half(TransformedDistribution):
    """The absolute value of a symmetric distribution."""

    arg_constraints = {"scale": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative
    _of: type[Distribution]

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(type(self)._of(0, scale, validate_args), AbsTransform(), validate_args)  # type: ignore[arg-type]

    @property
    def scale(self) -> Any:
        return self.base_dist.scale  # type: ignore[attr-defined]

    @property
    def mode(self) -> Any:
        return F.zeros_like(self.scale)

    def log_prob(self, value: Any) -> Any:
        return F.where(value >= 0, self.base_dist.log_prob(value) + log(2), -float("inf"))

    def cdf(self, value: Any) -> Any:
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Any) -> Any:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Any:
        return self.base_dist.entropy() - log(2)


class HalfNormal(_Half):
    """The size of normal numbers of mean 0. `torch.distributions.HalfNormal`."""

    _of = Normal

    @property
    def mean(self) -> Any:
        return self.scale * sqrt(2 / pi)

    @property
    def variance(self) -> Any:
        return self.scale**2 * (1 - 2 / pi)


class HalfCauchy(_Half):
    """The size of Cauchy numbers around 0. `torch.distributions.HalfCauchy`."""

    _of = Cauchy

    @property
    def mean(self) -> Any:
        return F.full_like(self.scale, float("inf"))

    @property
    def variance(self) -> Any:
        return self.base_dist.variance


class Pareto(TransformedDistribution):
    """Numbers from `scale` on, whose density falls with the power alpha + 1. `torch.distributions.Pareto`."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}  # noqa: RUF012

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = together(scale, alpha)
        base = Exponential(self.alpha, validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Pareto(self.scale.expand(batch_shape), self.alpha.expand(batch_shape), False)

    @property
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Any:
        a = F.clamp(self.alpha, min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        a = F.clamp(self.alpha, min=2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def entropy(self) -> Any:
        return (self.scale / self.alpha).log() + (1 + 1 / self.alpha)
