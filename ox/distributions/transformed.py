"""A distribution of a function of random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox import functions as F
from ox.autograd.grad_mode import no_grad
from ox.distributions.distribution import Distribution
from ox.distributions.independent import Independent
from ox.distributions.transform import ComposeTransform, Transform, sum_rightmost
from ox.errors import ArgumentError, ShapeError

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """What transforms, one after the other, make of samples of a base. `torch.distributions.TransformedDistribution`.

    Args:
        base_distribution: of what goes in.
        transforms: a transform, or a list of them.

    Raises:
        ArgumentError: something else than a transform.
        ShapeError: a transform of vectors, of a base with too few dimensions.
    """

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms: list[Any] = list(transforms) if isinstance(transforms, (list, tuple)) else [transforms]
        for each in self.transforms:
            if not isinstance(each, Transform):
                raise ArgumentError("transforms are a Transform or a list of them", got=type(each).__name__)
        whole = ComposeTransform(self.transforms)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        if len(shape) < whole.domain.event_dim:
            raise ShapeError(
                "the base has too few dimensions for the transform",
                expected=f"{whole.domain.event_dim} or more",
                got=str(list(shape)),
            )
        made = whole.forward_shape(shape)
        wide = whole.inverse_shape(made)
        if tuple(wide) != tuple(shape):
            base_distribution = base_distribution.expand(wide[: len(wide) - len(base_distribution.event_shape)])
        more = whole.domain.event_dim - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, more) if more > 0 else base_distribution
        dims = whole.codomain.event_dim + max(len(base_distribution.event_shape) - whole.domain.event_dim, 0)
        super().__init__(tuple(made[: len(made) - dims]), tuple(made[len(made) - dims :]), validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]  # here it depends
        return self.base_dist.has_rsample

    @property
    def support(self) -> Any:
        return self.transforms[-1].codomain if self.transforms else self.base_dist.support

    def _through(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return self._through(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._through(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        dims, total, y = len(self._event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            volume = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(volume, dims - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape))

    def _sign(self) -> Any:
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return sign

    def cdf(self, value: Any) -> Any:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._turned(self.base_dist.cdf(value))

    def icdf(self, value: Any) -> Any:
        return self._through(self.base_dist.icdf(self._turned(value)))

    def _turned(self, share: Any) -> Any:
        """A share below a value, of falling transforms that above it."""
        sign = self._sign()
        if isinstance(sign, int):
            return share if sign == 1 else 1 - share
        return F.where(sign > 0, share, 1 - share)
