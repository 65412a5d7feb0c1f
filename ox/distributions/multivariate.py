"""Normal vectors."""

from __future__ import annotations

from math import log, pi
from typing import Any

from ox import functions as F
from ox.distributions import constraints
from ox.distributions.distribution import Distribution, require
from ox.errors import ArgumentError
from ox.linalg import cholesky, inv, solve_triangular
from ox.random import normal
from ox.tensors.random_sampling import beside

__all__ = ["MultivariateNormal"]


class MultivariateNormal(Distribution):
    """Normal vectors of a mean and a covariance. `torch.distributions.MultivariateNormal`.

    Args:
        loc: [batch, n].
        covariance_matrix: [batch, n, n], symmetric and positive definite; or
        precision_matrix: its inverse; or
        scale_tril: its lower Cholesky factor.

    Raises:
        ArgumentError: not exactly one of the three.
        LinAlgError: a covariance that is not positive definite.
    """

    has_rsample = True
    support = constraints.real_vector

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if sum(m is not None for m in (covariance_matrix, precision_matrix, scale_tril)) != 1:
            raise ArgumentError("MultivariateNormal takes one of covariance_matrix, precision_matrix and scale_tril")
        if scale_tril is not None:
            factor = scale_tril
        elif covariance_matrix is not None:
            factor = cholesky(covariance_matrix)
        else:
            factor = cholesky(inv(precision_matrix))
        n = loc.shape[-1]
        batch = F.broadcast_shapes(loc.shape[:-1], factor.shape[:-2])
        self.loc, self.scale_tril = F.broadcast_to(loc, (*batch, n)), F.broadcast_to(factor, (*batch, n, n))
        super().__init__(batch, (n,), validate_args)
        if self._validate_args:
            require("loc", self.loc, self.loc == self.loc, "numbers")

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def precision_matrix(self) -> Any:
        return inv(self.covariance_matrix)

    @property
    def covariance_matrix(self) -> Any:
        return self.scale_tril @ self.scale_tril.transpose(-1, -2)

    @property
    def variance(self) -> Any:
        return (self.scale_tril**2).sum(-1)

    def _half_log_det(self) -> Any:
        return F.diagonal(self.scale_tril, 0, -2, -1).log().sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Any:
        drawn = beside(normal(self._extended_shape(sample_shape), self.loc.dtype), self.loc)
        return self.loc + (self.scale_tril @ drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Any) -> Any:
        away = (value - self.loc).unsqueeze(-1)
        whitened = solve_triangular(self.scale_tril, away, upper=False).squeeze(-1)
        return -0.5 * (self.event_shape[0] * log(2 * pi) + (whitened**2).sum(-1)) - self._half_log_det()

    def entropy(self) -> Any:
        return 0.5 * self.event_shape[0] * (1 + log(2 * pi)) + self._half_log_det()
