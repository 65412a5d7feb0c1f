"""How far one distribution is from another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ox import functions as F
from ox.distributions.bernoulli import Bernoulli
from ox.distributions.categorical import Categorical
from ox.distributions.distribution import Distribution
from ox.distributions.independent import Independent
from ox.distributions.multivariate import MultivariateNormal
from ox.distributions.normal import LogNormal, Normal
from ox.errors import ArgumentError
from ox.linalg import solve_triangular

__all__ = ["kl_divergence", "register_kl"]

Divergence = Callable[[Any, Any], Any]
_FORMULAS: dict[tuple[type, type], Divergence] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """A decorator: the function computes KL(p‖q) of these classes. `torch.distributions.register_kl`."""

    def keep(formula: Divergence) -> Divergence:
        _FORMULAS[type_p, type_q] = formula
        return formula

    return keep


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """KL(p‖q) = E_p[log p - log q], in the shape of the batch. `torch.distributions.kl_divergence`.

    Raises:
        ArgumentError: no formula for this pair.
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _FORMULAS:
                return _FORMULAS[a, b](p, q)
    raise ArgumentError(
        f"no formula for KL({type(p).__name__}‖{type(q).__name__})",
        hint="(p.log_prob(x) - q.log_prob(x)).mean() over samples x of p, or a formula under register_kl",
    )


@register_kl(Normal, Normal)
@register_kl(LogNormal, LogNormal)
def _normals(p: Normal, q: Normal) -> Any:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Categorical, Categorical)
def _classes(p: Categorical, q: Categorical) -> Any:
    terms = p.probs * (p.logits - q.logits)
    terms = F.where(q.probs == 0, float("inf"), terms)
    return F.where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(Bernoulli, Bernoulli)
def _bits(p: Bernoulli, q: Bernoulli) -> Any:
    return p.log_prob(p.probs) - q.log_prob(p.probs)


@register_kl(Independent, Independent)
def _vectors(p: Independent, q: Independent) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ArgumentError("KL of Independents takes as many dimensions from either batch")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))


@register_kl(MultivariateNormal, MultivariateNormal)
def _normal_vectors(p: MultivariateNormal, q: MultivariateNormal) -> Any:
    spread = solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    away = solve_triangular(q.scale_tril, (p.loc - q.loc).unsqueeze(-1), upper=False)
    squares = (spread**2).sum((-2, -1)) + (away**2).sum((-2, -1))
    return 0.5 * (squares - p.event_shape[0]) + q._half_log_det() - p._half_log_det()
