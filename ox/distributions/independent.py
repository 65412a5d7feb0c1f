"""Several distributions as one over vectors."""

from __future__ import annotations

from typing import Any

from ox.distributions import constraints
from ox.distributions.distribution import Distribution
from ox.errors import ShapeError
from ox.tensors.tensor import Tensor

__all__ = ["Independent"]


class Independent(Distribution):
    """The last dimensions of a batch as one event, whose log-probabilities add up. `torch.distributions.Independent`.

    Raises:
        ShapeError: more dimensions than the batch has.
    """

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        batch, n = base_distribution.batch_shape, reinterpreted_batch_ndims
        if n > len(batch):
            raise ShapeError(
                "Independent takes dimensions from the batch", expected=f"at most {len(batch)}", got=str(n)
            )
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        cut = len(batch) - n
        super().__init__(batch[:cut], (*batch[cut:], *base_distribution.event_shape), validate_args)

    def _summed(self, x: Tensor) -> Any:
        n = self.reinterpreted_batch_ndims
        return x.sum(tuple(range(-n, 0))) if n else x

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]  # here it depends
        return self.base_dist.has_rsample

    @property
    def mean(self) -> Any:
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    @property
    def support(self) -> Any:
        return constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)

    def sample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Any:
        return self._summed(self.base_dist.entropy())
