"""Functions of random numbers that know their inverse and their volume: what `TransformedDistribution` is made with.
`torch.distributions.transforms`."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, prod
from typing import Any

from ox import functions as F
from ox import ops
from ox.distributions import constraints
from ox.distributions.transform import (
    ComposeTransform,
    IndependentTransform,
    Transform,
    of_events,
    sum_rightmost,
)
from ox.errors import ShapeError
from ox.functions.creation import arange
from ox.functions.dtype_queries import finfo
from ox.tensors.tensor import Tensor


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    return ops.Softplus(x)


class ReshapeTransform(Transform):
    """Another shape of one event. `torch.distributions.ReshapeTransform`. Raises ShapeError for other sizes."""

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if prod(self.in_shape) != prod(self.out_shape):
            raise ShapeError(
                "in_shape and out_shape must have the same number of elements", got=f"{in_shape} and {out_shape}"
            )
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Any) -> Any:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return (*shape[: len(shape) - len(self.in_shape)], *self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return (*shape[: len(shape) - len(self.out_shape)], *self.in_shape)


class ExpTransform(Transform):
    """exp(x). `torch.distributions.ExpTransform`."""

    bijective, sign, codomain = True, 1, constraints.positive

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class PowerTransform(Transform):
    """x^exponent of positive x. `torch.distributions.PowerTransform`."""

    bijective, domain, codomain = True, constraints.positive, constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        return self.exponent.sign() if isinstance(self.exponent, Tensor) else (self.exponent > 0) - (self.exponent < 0)

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x)). `torch.distributions.SigmoidTransform`."""

    bijective, sign, codomain = True, 1, constraints.unit_interval

    def _call(self, x: Any) -> Any:
        info = finfo(x.dtype)
        return F.clamp(F.sigmoid(x), min=info.tiny, max=1 - info.eps)

    def _inverse(self, y: Any) -> Any:
        info = finfo(y.dtype)
        y = F.clamp(y, min=info.tiny, max=1 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(Transform):
    """log(1 + exp(x)). `torch.distributions.SoftplusTransform`."""

    bijective, sign, codomain = True, 1, constraints.positive

    def _call(self, x: Any) -> Any:
        return softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x)


class TanhTransform(Transform):
    """tanh(x); its volume by a formula that does not lose the tails. `torch.distributions.TanhTransform`."""

    bijective, sign, codomain = True, 1, constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return F.atanh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return 2.0 * (log(2.0) - x - softplus(-2.0 * x))


class AbsTransform(Transform):
    """|x|, whose inverse gives the positive one. `torch.distributions.AbsTransform`."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(Transform):
    """loc + scale · x. `torch.distributions.AffineTransform`."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale = loc, scale
        self.domain = self.codomain = of_events(constraints.real, event_dim)

    @property
    def sign(self) -> Any:
        return self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if isinstance(self.scale, Tensor):
            each = F.broadcast_to(self.scale.abs().log(), F.broadcast_shapes(x.shape, self.scale.shape))
        else:
            each = F.ones_like(x) * log(abs(self.scale))
        return sum_rightmost(each, self.event_dim)


class SoftmaxTransform(Transform):
    """Softmax along the last dimension; not bijective. `torch.distributions.SoftmaxTransform`."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Any) -> Any:
        return F.softmax(x, -1)

    def _inverse(self, y: Any) -> Any:
        return y.log()


class StickBreakingTransform(Transform):
    """K - 1 numbers as K parts of a stick of length 1. `torch.distributions.StickBreakingTransform`."""

    bijective, domain, codomain = True, constraints.real_vector, constraints.simplex

    @staticmethod
    def _offset(count: int, like: Any) -> Any:
        return arange(count, 0, -1, dtype=like.dtype, device=like.device)

    def _call(self, x: Any) -> Any:
        z = SigmoidTransform()(x - self._offset(x.shape[-1], x).log())
        whole = F.ones_like(z[..., :1])
        return F.cat([z, whole], -1) * F.cat([whole, (1 - z).cumprod(-1)], -1)

    def _inverse(self, y: Any) -> Any:
        cut = y[..., :-1]
        rest = F.clamp(1 - cut.cumsum(-1), min=finfo(y.dtype).tiny)
        return cut.log() - rest.log() + self._offset(cut.shape[-1], y).log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._offset(x.shape[-1], x).log()
        return (-x + -softplus(-x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """A square matrix as a Cholesky factor: its lower part, the diagonal exponentiated.
    `torch.distributions.LowerCholeskyTransform`."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return F.tril(x, -1) + F.diag_embed(F.diagonal(x, 0, -2, -1).exp())

    def _inverse(self, y: Any) -> Any:
        return F.tril(y, -1) + F.diag_embed(F.diagonal(y, 0, -2, -1).log())


class CumulativeDistributionTransform(Transform):
    """The distribution function of a distribution. `torch.distributions.CumulativeDistributionTransform`."""

    bijective, sign, codomain = True, 1, constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)


identity_transform = ComposeTransform([])
__all__ = [
    "AbsTransform",
    "AffineTransform",
    "ComposeTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]
