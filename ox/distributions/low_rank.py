"""Normal vectors whose covariance is a diagonal and a few directions."""

from __future__ import annotations

from math import log, pi
from typing import Any

from ox import functions as F
from ox.distributions import constraints
from ox.distributions.distribution import Distribution, require
from ox.errors import ShapeError
from ox.linalg import cholesky, solve_triangular
from ox.random import normal
from ox.tensors.random_sampling import beside

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """Normal vectors of covariance W W^T + diag(D). `torch.distributions.LowRankMultivariateNormal`.

    Args:
        loc: [batch, n].
        cov_factor: W [batch, n, rank].
        cov_diag: D [batch, n], positive.

    Raises:
        ShapeError: sizes that do not meet.
        ArgumentError: a D that is not positive.
    """

    has_rsample = True
    support = constraints.real_vector

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        n = loc.shape[-1] if loc.ndim else 0
        if not loc.ndim or cov_factor.ndim < 2 or cov_factor.shape[-2] != n or cov_diag.shape[-1:] != (n,):
            raise ShapeError(
                "the shapes of loc, cov_factor and cov_diag do not fit",
                expected="[..., n], [..., n, rank] and [..., n]",
                got=", ".join(str(list(x.shape)) for x in (loc, cov_factor, cov_diag)),
            )
        batch = F.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc, self.cov_diag = F.broadcast_to(loc, (*batch, n)), F.broadcast_to(cov_diag, (*batch, n))
        self.cov_factor = F.broadcast_to(cov_factor, (*batch, *cov_factor.shape[-2:]))
        super().__init__(batch, (n,), validate_args)
        if self._validate_args:
            require("cov_diag", cov_diag, cov_diag > 0, "positive numbers")

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return (self.cov_factor**2).sum(-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Any:
        return self.cov_factor @ self.cov_factor.mT + F.diag_embed(self.cov_diag)

    @property
    def scale_tril(self) -> Any:
        return cholesky(self.covariance_matrix)

    @property
    def precision_matrix(self) -> Any:
        scaled = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        part = solve_triangular(self._capacitance(), scaled, upper=False)
        return F.diag_embed(1 / self.cov_diag) - part.mT @ part

    def _capacitance(self) -> Any:
        """The Cholesky factor of I + W^T D^-1 W."""
        inner = (self.cov_factor.mT / self.cov_diag.unsqueeze(-2)) @ self.cov_factor
        rank = inner.shape[-1]
        return cholesky(inner + F.diag_embed(F.ones_like(inner[..., 0])).reshape(*inner.shape[:-2], rank, rank))

    def _log_det(self, factor: Any) -> Any:
        return 2 * F.diagonal(factor, 0, -2, -1).log().sum(-1) + self.cov_diag.log().sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        wide = (*shape[:-1], self.cov_factor.shape[-1])
        first, second = (beside(normal(s, self.loc.dtype), self.loc) for s in (wide, shape))
        return self.loc + (self.cov_factor @ first.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * second

    def log_prob(self, value: Any) -> Any:
        away, factor = value - self.loc, self._capacitance()
        inner = (self.cov_factor.mT @ (away / self.cov_diag).unsqueeze(-1)).squeeze(-1)
        part = solve_triangular(factor, inner.unsqueeze(-1), upper=False).squeeze(-1)
        squares = (away**2 / self.cov_diag).sum(-1) - (part**2).sum(-1)
        return -0.5 * (self._event_shape[0] * log(2 * pi) + self._log_det(factor) + squares)

    def entropy(self) -> Any:
        return 0.5 * (self._event_shape[0] * (1 + log(2 * pi)) + self._log_det(self._capacitance()))
