"""Extremes of many numbers, Gumbel's and Weibull's, and Kumaraswamy's, which are made of even ones likewise."""

from __future__ import annotations

from math import pi
from typing import Any

from ox import functions as F
from ox.distributions import constraints
from ox.distributions.continuous import Exponential, Uniform
from ox.distributions.distribution import require, together
from ox.distributions.transformed import TransformedDistribution
from ox.distributions.transforms import AffineTransform, ExpTransform, PowerTransform
from ox.functions.dtype_queries import finfo

__all__ = ["Gumbel", "Kumaraswamy", "Weibull"]

EULER = 0.57721566490153286060  # Euler's constant


class Gumbel(TransformedDistribution):
    """The greatest of many numbers whose density falls exponentially. `torch.distributions.Gumbel`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = together(loc, scale)
        if validate_args is not False:
            require("scale", self.scale, self.scale > 0, "positive numbers")
        info = finfo(self.loc.dtype)
        base = Uniform(F.full_like(self.loc, info.tiny), 1 - info.eps, False)
        fall, one = AffineTransform(0, -F.ones_like(self.scale)), ExpTransform().inv
        super().__init__(base, [one, fall, one, AffineTransform(self.loc, -self.scale)], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Gumbel(self.loc.expand(batch_shape), self.scale.expand(batch_shape), False)

    @property
    def mean(self) -> Any:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return (pi / 6**0.5) * self.scale

    @property
    def variance(self) -> Any:
        return self.stddev**2

    def log_prob(self, value: Any) -> Any:
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def entropy(self) -> Any:
        return self.scale.log() + (1 + EULER)


class Weibull(TransformedDistribution):
    """Lifetimes: the power 1/concentration of exponential numbers, times a scale. `torch.distributions.Weibull`."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}  # noqa: RUF012
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = together(scale, concentration)
        if validate_args is not False:
            require("scale", self.scale, self.scale > 0, "positive numbers")
            require("concentration", self.concentration, self.concentration > 0, "positive numbers")
        steps = [PowerTransform(1 / self.concentration), AffineTransform(0, self.scale)]
        super().__init__(Exponential(F.ones_like(self.scale), False), steps, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Weibull(self.scale.expand(batch_shape), self.concentration.expand(batch_shape), False)

    @property
    def mean(self) -> Any:
        return self.scale * F.lgamma(1 + 1 / self.concentration).exp()

    @property
    def mode(self) -> Any:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** (1 / k)

    @property
    def variance(self) -> Any:
        k = self.concentration
        return self.scale**2 * (F.lgamma(1 + 2 / k).exp() - (2 * F.lgamma(1 + 1 / k)).exp())

    def entropy(self) -> Any:
        k = self.concentration
        return EULER * (1 - 1 / k) + (self.scale / k).log() + 1


class Kumaraswamy(TransformedDistribution):
    """Numbers between 0 and 1, much like Beta's, with a simple distribution function.
    `torch.distributions.Kumaraswamy`."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}  # noqa: RUF012
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = together(concentration1, concentration0)
        if validate_args is not False:
            require("concentration1", self.concentration1, self.concentration1 > 0, "positive numbers")
            require("concentration0", self.concentration0, self.concentration0 > 0, "positive numbers")
        steps = [
            PowerTransform(1 / self.concentration0),
            AffineTransform(1.0, -1.0),
            PowerTransform(1 / self.concentration1),
        ]
        base = Uniform(F.zeros_like(self.concentration0), F.ones_like(self.concentration0), False)
        super().__init__(base, steps, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Kumaraswamy(self.concentration1.expand(batch_shape), self.concentration0.expand(batch_shape), False)

    def _moment(self, n: int) -> Any:
        a, b = self.concentration1, self.concentration0
        ratio = 1 + n / a
        return (F.lgamma(ratio) + F.lgamma(b) - F.lgamma(ratio + b)).exp() * b

    @property
    def mean(self) -> Any:
        return self._moment(1)

    @property
    def variance(self) -> Any:
        return self._moment(2) - self.mean**2

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        harmonic = F.digamma(b + 1) + EULER
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - a.log() - b.log()
