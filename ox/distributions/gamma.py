"""Gamma numbers, and what is made of them: Beta, Dirichlet, Chi2, InverseGamma, StudentT, FisherSnedecor."""

from __future__ import annotations

from math import log, pi
from typing import Any

import numpy as np

from ox import functions as F
from ox.autograd.grad_mode import no_grad
from ox.core import operator
from ox.distributions import constraints
from ox.distributions.categorical import one_hot
from ox.distributions.distribution import Distribution, require, together
from ox.errors import ShapeError
from ox.functions.dtype_queries import finfo
from ox.random import normal
from ox.tensors.random_sampling import beside, on_host
from ox.tensors.tensor import Tensor

__all__ = ["Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT"]

SERIES = 200.0  # the concentration up to which the slope is summed; from there on an approximation is exact to 1e-5


def standard_gamma(concentration: Tensor) -> Any:
    """A sample of Gamma(concentration, 1), drawn by NumPy, with the gradient of its quantile: dz/da = -(dP/da) / p(z)
    (implicit reparameterization, Figurnov et al., 2018)."""
    shapes = concentration.detach().cpu().array.astype(np.float64)
    drawn = np.asarray(on_host("a gamma sample", concentration, None, "gamma").standard_gamma(shapes))
    least = finfo(concentration.dtype).tiny
    drawn = np.maximum(drawn, float(least))
    z = beside(operator.as_input(drawn.astype(concentration.array.dtype)), concentration)
    if concentration.node is None and not concentration.requires_grad:
        return z
    slope = beside(operator.as_input(quantile_slope(shapes, drawn).astype(z.array.dtype)), concentration)
    return z + (concentration - concentration.detach()) * slope


def quantile_slope(a: Any, z: Any) -> Any:
    """How fast a quantile z of Gamma(a, 1) moves with a."""
    a, z = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(z, np.float64))
    many = a > SERIES
    # Wilson and Hilferty: the cube root is nearly normal, z = a (1 - 1/(9a) + u/(3 sqrt a))^3 with u fixed
    safe = np.where(many, a, SERIES)
    root = np.cbrt(np.where(many, z, SERIES) / safe)
    u = (root - 1 + 1 / (9 * safe)) * 3 * np.sqrt(safe)
    far = root**3 + 3 * safe * root**2 * (1 / (9 * safe**2) - u / (6 * safe**1.5))
    return np.where(many, far, _summed(np.where(many, 1.0, a), np.where(many, 1.0, z)))


def _summed(a: Any, z: Any) -> Any:
    """-(dP/da) / p(z) by the series P = z^a e^-z sum z^n / gamma(a + n + 1), whose terms all have one sign."""
    with no_grad():
        # relative to the density z^(a-1) e^-z / gamma(a): t_0 = z / a, t_n = t_(n-1) z / (a + n)
        psi = F.digamma(operator.as_input(np.asarray(a + 1, np.float64))).array
    logarithm, term = np.log(z), z / a
    total = np.zeros_like(z)
    for n in range(1, int(np.max(z, initial=0) + 12 * np.sqrt(np.max(z, initial=0)) + 60)):
        total += term * (psi - logarithm)
        psi = psi + 1 / (a + n)
        term = term * z / (a + n)
    return total


class Gamma(Distribution):
    """Positive numbers of a concentration and a rate. `torch.distributions.Gamma`.

    Raises:
        ArgumentError: a parameter that is not positive.
    """

    has_rsample = True
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = together(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)
        if self._validate_args:
            require("concentration", self.concentration, self.concentration > 0, "positive numbers")
            require("rate", self.rate, self.rate > 0, "positive numbers")

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return F.clamp((self.concentration - 1) / self.rate, min=0)

    @property
    def variance(self) -> Any:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Any = ()) -> Any:
        return standard_gamma(F.broadcast_to(self.concentration, self._extended_shape(sample_shape))) / self.rate

    def log_prob(self, value: Any) -> Any:
        a, rate = self.concentration, self.rate
        return F.xlogy(a, rate) + F.xlogy(a - 1, value) - rate * value - F.lgamma(a)

    def entropy(self) -> Any:
        a = self.concentration
        return a - self.rate.log() + F.lgamma(a) + (1 - a) * F.digamma(a)

    def cdf(self, value: Any) -> Any:
        return F.igamma(self.concentration, self.rate * value)


class Chi2(Gamma):
    """The sum of `df` squares of normal numbers. `torch.distributions.Chi2`."""

    arg_constraints = {"df": constraints.positive}  # noqa: RUF012

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (df,) = together(df)
        super().__init__(0.5 * df, F.full_like(df, 0.5), validate_args)

    @property
    def df(self) -> Any:
        return self.concentration * 2


class InverseGamma(Distribution):
    """The reciprocal of gamma numbers. `torch.distributions.InverseGamma`."""

    has_rsample = True
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}  # noqa: RUF012
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._gamma = Gamma(concentration, rate, validate_args)
        super().__init__(self._gamma.batch_shape, (), validate_args)

    @property
    def concentration(self) -> Any:
        return self._gamma.concentration

    @property
    def rate(self) -> Any:
        return self._gamma.rate

    @property
    def mean(self) -> Any:
        a = self.concentration
        return F.where(a > 1, self.rate / F.clamp(a - 1, min=finfo(a.dtype).tiny), float("inf"))

    @property
    def mode(self) -> Any:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        a = self.concentration
        finite = self.rate**2 / ((a - 1) ** 2 * F.where(a > 2, a - 2, 1.0))
        return F.where(a > 2, finite, float("inf"))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return 1 / self._gamma.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        return self._gamma.log_prob(1 / value) - 2 * value.log()

    def entropy(self) -> Any:
        a = self.concentration
        return a + self.rate.log() + F.lgamma(a) - (1 + a) * F.digamma(a)


class Dirichlet(Distribution):
    """Shares that add up to 1. `torch.distributions.Dirichlet`.

    Args:
        concentration: [batch, K], positive.

    Raises:
        ShapeError: no dimension.
        ArgumentError: a concentration that is not positive.
    """

    has_rsample = True
    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}  # noqa: RUF012
    support = constraints.simplex

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if not concentration.ndim:
            raise ShapeError("Dirichlet needs a dimension of shares", expected="[..., K]", got="[]")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)
        if self._validate_args:
            require("concentration", concentration, concentration > 0, "positive numbers")

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        less = F.clamp(self.concentration - 1, min=0)
        mode = less / less.sum(-1, True)
        flat = (self.concentration < 1).all(-1, True)
        first = one_hot(mode.argmax(-1), self.concentration.shape[-1], mode)
        return F.where(flat, first, mode)

    @property
    def variance(self) -> Any:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        parts = standard_gamma(F.broadcast_to(self.concentration, self._extended_shape(sample_shape)))
        return parts / parts.sum(-1, True)

    def log_prob(self, value: Any) -> Any:
        a = self.concentration
        return F.xlogy(a - 1, value).sum(-1) + F.lgamma(a.sum(-1)) - F.lgamma(a).sum(-1)

    def entropy(self) -> Any:
        a = self.concentration
        k, total = a.shape[-1], a.sum(-1)
        return F.lgamma(a).sum(-1) - F.lgamma(total) - (k - total) * F.digamma(total) - ((a - 1) * F.digamma(a)).sum(-1)


class Beta(Distribution):
    """Numbers between 0 and 1. `torch.distributions.Beta`.

    Args:
        concentration1, concentration0: of 1 and of 0, positive.

    Raises:
        ArgumentError: a concentration that is not positive.
    """

    has_rsample = True
    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}  # noqa: RUF012
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        both = F.stack(together(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(both, validate_args)
        super().__init__(self._dirichlet.batch_shape, (), validate_args)

    @property
    def concentration1(self) -> Any:
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Any:
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Any:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Any:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Any) -> Any:
        return self._dirichlet.log_prob(F.stack([value, 1 - value], -1))

    def entropy(self) -> Any:
        return self._dirichlet.entropy()


class StudentT(Distribution):
    """Student's numbers of `df` degrees of freedom. `torch.distributions.StudentT`."""

    has_rsample = True
    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.real

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = together(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)
        if self._validate_args:
            require("df", self.df, self.df > 0, "positive numbers")
            require("scale", self.scale, self.scale > 0, "positive numbers")

    @property
    def mean(self) -> Any:
        return F.where(self.df > 1, self.loc, float("nan"))

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        df = self.df
        finite = self.scale**2 * df / F.where(df > 2, df - 2, 1.0)
        return F.where(df > 2, finite, F.where(df > 1, float("inf"), F.full_like(df, float("nan"))))

    def rsample(self, sample_shape: Any = ()) -> Any:
        x = beside(normal(self._extended_shape(sample_shape), self.df.dtype), self.df)
        z = Chi2(self.df, False).rsample(sample_shape)
        return self.loc + self.scale * x * F.rsqrt(z / self.df)

    def log_prob(self, value: Any) -> Any:
        y, df = (value - self.loc) / self.scale, self.df
        norm = self.scale.log() + 0.5 * df.log() + 0.5 * log(pi) + F.lgamma(0.5 * df) - F.lgamma(0.5 * (df + 1))
        return -0.5 * (df + 1) * F.log1p(y**2 / df) - norm

    def entropy(self) -> Any:
        df = self.df
        beta = F.lgamma(0.5 * df) + log(pi) / 2 - F.lgamma(0.5 * (1 + df))
        spread = 0.5 * (df + 1) * (F.digamma(0.5 * (df + 1)) - F.digamma(0.5 * df))
        return self.scale.log() + spread + 0.5 * df.log() + beta


class FisherSnedecor(Distribution):
    """The quotient of two Chi2 numbers, each by its degrees of freedom. `torch.distributions.FisherSnedecor`."""

    has_rsample = True
    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}  # noqa: RUF012
    support = constraints.positive

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = together(df1, df2)
        super().__init__(self.df1.shape, (), validate_args)
        if self._validate_args:
            require("df1", self.df1, self.df1 > 0, "positive numbers")
            require("df2", self.df2, self.df2 > 0, "positive numbers")

    @property
    def mean(self) -> Any:
        df = self.df2
        return F.where(df > 2, df / F.where(df > 2, df - 2, 1.0), float("nan"))

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return F.where(self.df1 > 2, mode, float("nan"))

    @property
    def variance(self) -> Any:
        df = F.where(self.df2 > 4, self.df2, 5.0)
        finite = 2 * df**2 * (self.df1 + df - 2) / (self.df1 * (df - 2) ** 2 * (df - 4))
        return F.where(self.df2 > 4, finite, float("nan"))

    def rsample(self, sample_shape: Any = ()) -> Any:
        above = Gamma(self.df1 * 0.5, self.df1, False).rsample(sample_shape)
        below = Gamma(self.df2 * 0.5, self.df2, False).rsample(sample_shape)
        return above / F.clamp(below, min=finfo(below.dtype).tiny)

    def log_prob(self, value: Any) -> Any:
        a, b = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        constant = F.lgamma(a + b) - F.lgamma(a) - F.lgamma(b)
        return constant + a * ratio.log() + (a - 1) * value.log() - (a + b) * F.log1p(ratio * value)
