"""Divergences of one family, and of pairs of families, as `kl_divergence` finds them."""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

from ox import functions as F
from ox.distributions.continuous import Exponential, Laplace, Uniform
from ox.distributions.counts import Binomial, Geometric, Poisson
from ox.distributions.divergence import kl_divergence, register_kl
from ox.distributions.extremes import EULER, Gumbel
from ox.distributions.gamma import Beta, Dirichlet, Gamma
from ox.distributions.heavy_tails import Cauchy, HalfNormal, Pareto
from ox.distributions.low_rank import LowRankMultivariateNormal
from ox.distributions.normal import Normal
from ox.distributions.one_hot import OneHotCategorical
from ox.distributions.transformed import TransformedDistribution
from ox.errors import ArgumentError
from ox.tensors.tensor import Tensor

INFINITE = float("inf")


@register_kl(Gamma, Gamma)
def _gammas(p: Gamma, q: Gamma) -> Any:
    a, b = p.concentration, q.concentration
    ratio = b * (p.rate / q.rate).log()
    return ratio + F.lgamma(b) - F.lgamma(a) + (a - b) * F.digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Dirichlet, Dirichlet)
def _shares(p: Dirichlet, q: Dirichlet) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    constant = F.lgamma(total) - F.lgamma(b.sum(-1)) - (F.lgamma(a) - F.lgamma(b)).sum(-1)
    return constant + ((a - b) * (F.digamma(a) - F.digamma(total).unsqueeze(-1))).sum(-1)


@register_kl(Beta, Beta)
def _betas(p: Beta, q: Beta) -> Any:
    return _shares(p._dirichlet, q._dirichlet)


@register_kl(Exponential, Exponential)
def _exponentials(p: Exponential, q: Exponential) -> Any:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> Any:
    ratio, a = q.rate / p.rate, q.concentration
    return ratio - a * ratio.log() + F.lgamma(a) + a * EULER - (1 + EULER)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Gamma, q: Exponential) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(Laplace, Laplace)
def _laplaces(p: Laplace, q: Laplace) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Any:
    away = p.loc - q.loc
    steps = away / p.scale
    distance = sqrt(2 / pi) * p.scale * (-0.5 * steps**2).exp() + away * F.erf(sqrt(0.5) * steps)
    return -(p.scale / q.scale).log() + distance / q.scale - 0.5 * (1 + log(0.5 * pi))


@register_kl(Cauchy, Cauchy)
def _cauchys(p: Cauchy, q: Cauchy) -> Any:
    return ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log()


@register_kl(HalfNormal, HalfNormal)
def _halves(p: HalfNormal, q: HalfNormal) -> Any:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _paretos(p: Pareto, q: Pareto) -> Any:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return F.where(p.scale < q.scale, INFINITE, found)


@register_kl(Gumbel, Gumbel)
def _gumbels(p: Gumbel, q: Gumbel) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return away - ratio.log() + ratio * EULER + (F.lgamma(1 + ratio) - away).exp() - (1 + EULER)


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Normal, q: Gumbel) -> Any:
    away, ratio = (p.loc - q.loc) / q.scale, p.scale / q.scale
    return away + (0.5 * ratio**2 - away).exp() - ratio.log() - 0.5 * (1 + log(2 * pi))


@register_kl(Uniform, Uniform)
def _intervals(p: Uniform, q: Uniform) -> Any:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return F.where((q.low > p.low) | (q.high < p.high), INFINITE, found)


@register_kl(Uniform, Normal)
def _interval_normal(p: Uniform, q: Normal) -> Any:
    width = p.high - p.low
    squares = width**2 / 12 + ((p.high + p.low - 2 * q.loc) / 2) ** 2
    return (sqrt(2 * pi) * q.scale / width).log() + 0.5 * squares / q.scale**2


@register_kl(Poisson, Poisson)
def _poissons(p: Poisson, q: Poisson) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Geometric, Geometric)
def _geometrics(p: Geometric, q: Geometric) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Binomial, Binomial)
def _binomials(p: Binomial, q: Binomial) -> Any:
    if bool((p.total_count < q.total_count).any()):
        raise ArgumentError("KL of binomials whose second one has more trials is not known")
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return F.where(p.total_count > q.total_count, INFINITE, p.total_count * each)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hots(p: OneHotCategorical, q: OneHotCategorical) -> Any:
    return kl_divergence(p._categorical, q._categorical)


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_ranks(p: LowRankMultivariateNormal, q: LowRankMultivariateNormal) -> Any:
    precision, away = q.precision_matrix, (q.loc - p.loc).unsqueeze(-1)
    spread = (precision * p.covariance_matrix).sum((-2, -1))
    squares = (away * (precision @ away)).sum((-2, -1))
    volumes = q._log_det(q._capacitance()) - p._log_det(p._capacitance())
    return 0.5 * (volumes + spread + squares - p.event_shape[0])


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Any:
    if len(p.transforms) != len(q.transforms) or not all(map(_same, p.transforms, q.transforms)):
        raise ArgumentError("KL of transformed distributions needs the same transforms")
    if p.event_shape != q.event_shape:
        raise ArgumentError("KL of transformed distributions needs events of one shape")
    return kl_divergence(p.base_dist, q.base_dist)


def _same(a: Any, b: Any) -> bool:
    """Whether two transforms are of one kind with equal parameters."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return F.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if not hasattr(a, "log_abs_det_jacobian"):
        return bool(a == b)
    kept = [
        {k: v for k, v in vars(t).items() if k not in ("_pair", "_cache_size", "domain", "codomain")} for t in (a, b)
    ]
    return (
        type(a) is type(b)
        and kept[0].keys() == kept[1].keys()
        and all(_same(v, kept[1][k]) for k, v in kept[0].items())
    )
