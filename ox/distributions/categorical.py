"""One of several classes."""

from __future__ import annotations

from math import prod
from typing import Any

from ox import functions as F
from ox.distributions import constraints
from ox.distributions.distribution import Distribution, require
from ox.errors import ArgumentError, ShapeError
from ox.functions.creation import arange
from ox.functions.dtype_queries import finfo
from ox.tensors.random_sampling import multinomial
from ox.tensors.tensor import Tensor

__all__ = ["Categorical"]


def one_of(name: str, probs: Any, logits: Any) -> None:
    """Raise ArgumentError unless one of the two is given."""
    if (probs is None) == (logits is None):
        raise ArgumentError(f"{name} takes probs or logits, and not both")


def log_of(probs: Tensor) -> Any:
    """Logarithms of probabilities, which are kept off 0 and 1 by one step of their type."""
    step = finfo(probs.dtype).eps
    return F.clamp(probs, step, 1 - step).log()


def one_hot(classes: Any, count: int, like: Tensor) -> Any:
    """[..., count]: 1 at the class, else 0, in the type of `like`."""
    return (classes.unsqueeze(-1) == arange(count, device=like.device)).to(like.dtype)


class Categorical(Distribution):
    """One of the classes 0 ... K - 1 along the last dimension. `torch.distributions.Categorical`.

    Args:
        probs: [batch, K], not negative; they are divided by their sum.
        logits: their logarithms, up to a constant, instead.

    Raises:
        ArgumentError: both or neither, or values that cannot be.
        ShapeError: no dimension.
    """

    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        one_of("Categorical", probs, logits)
        given = probs if logits is None else logits
        if not given.ndim:
            raise ShapeError("Categorical needs a dimension of classes", expected="[..., classes]", got="[]")
        super().__init__(given.shape[:-1], (), validate_args)
        if self._validate_args:
            if logits is None:
                require("probs", probs, (probs >= 0) & (probs.sum(-1, keepdim=True) > 0), "numbers of 0 or more")
            else:
                require("logits", logits, logits == logits, "numbers")
        if logits is None:
            self.probs = probs / probs.sum(-1, keepdim=True)
            self.logits = log_of(self.probs)
        else:
            self.logits = logits - F.logsumexp(logits, -1, keepdim=True)
            self.probs = F.softmax(self.logits, -1)

    @property
    def param_shape(self) -> Any:
        return self.logits.shape

    @property
    def support(self) -> Any:
        return constraints.integer_interval(0, self.param_shape[-1] - 1)

    @property
    def mean(self) -> Any:
        return F.full_like(self.probs[..., 0], float("nan"))

    @property
    def variance(self) -> Any:
        return F.full_like(self.probs[..., 0], float("nan"))

    @property
    def mode(self) -> Any:
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Any = ()) -> Any:
        rows = self.probs.detach().reshape(-1, self.probs.shape[-1])
        drawn = multinomial(rows, prod(sample_shape), replacement=True)
        return drawn.t().reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        value = value.long().unsqueeze(-1)
        shape = F.broadcast_shapes(value.shape[:-1], self.batch_shape)
        logits = F.broadcast_to(self.logits, (*shape, self.logits.shape[-1]))
        return F.gather(logits, -1, F.broadcast_to(value, (*shape, 1))).squeeze(-1)

    def entropy(self) -> Any:
        # a class that cannot be has the logarithm -inf, and no part in the sum
        return -(F.clamp(self.logits, min=finfo(self.logits.dtype).min) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        """Every class, [K, batch]."""
        values = arange(self.probs.shape[-1], device=self.probs.device).reshape(-1, *[1] * len(self.batch_shape))
        return F.broadcast_to(values, (values.shape[0], *self.batch_shape)) if expand else values
