"""What every transform has, and transforms made of others."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import prod
from typing import Any

from ox import functions as F
from ox.distributions import constraints
from ox.distributions.constraints import Constraint
from ox.errors import ArgumentError


def sum_rightmost(value: Any, count: int) -> Any:
    """The sum over the last dimensions."""
    return value.sum(tuple(range(-count, 0))) if count else value


class Transform:
    """A function with `log |dy/dx|`. A subclass writes `_call`, `_inverse` and `log_abs_det_jacobian`, and says its
    `domain` and `codomain`. `torch.distributions.Transform`.

    Args:
        cache_size: 1 to remember the last x and y, so that `inv` of that very y is that very x.

    Raises:
        ArgumentError: another cache size.
    """

    bijective = False
    domain: Any = constraints.real
    codomain: Any = constraints.real

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ArgumentError("cache_size must be 0 or 1", got=f"cache_size={cache_size}")
        self._cache_size, self._pair = cache_size, (None, None)

    def with_cache(self, cache_size: int = 1) -> Any:
        """The transform itself if it remembers as many; a subclass makes another."""
        made = copy.copy(self)
        made._cache_size, made._pair = cache_size, (None, None)
        return made

    @property
    def event_dim(self) -> int:
        return int(self.domain.event_dim)

    @property
    def sign(self) -> Any:
        """1 where the function rises, -1 where it falls."""
        raise ArgumentError(f"{type(self).__name__} is not monotonic, so it has no sign")

    @property
    def inv(self) -> Transform:
        """The inverse as a transform."""
        return _Inverse(self)

    def __call__(self, x: Any) -> Any:
        if not self._cache_size:
            return self._call(x)
        last = self._pair
        if last[0] is x:
            return last[1]
        y = self._call(x)
        self._pair = x, y
        return y

    def _inv_call(self, y: Any) -> Any:
        if not self._cache_size:
            return self._inverse(y)
        last = self._pair
        if last[1] is y:
            return last[0]
        x = self._inverse(y)
        self._pair = x, y
        return x

    def _unknown(self, what: str) -> ArgumentError:
        return ArgumentError(f"{type(self).__name__} has no {what}", hint=f"def {what} in a subclass")

    def _call(self, x: Any) -> Any:
        raise self._unknown("_call")

    def _inverse(self, y: Any) -> Any:
        raise self._unknown("_inverse")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The logarithm of the volume that a unit of x becomes."""
        raise self._unknown("log_abs_det_jacobian")

    def forward_shape(self, shape: Any) -> Any:
        """The shape of y for one of x."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of x for one of y."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    """Another transform the other way."""

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._inv = transform
        self.domain, self.codomain, self.bijective = transform.codomain, transform.domain, transform.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Any) -> Any:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)


class ComposeTransform(Transform):
    """Transforms one after the other. `torch.distributions.ComposeTransform`."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)
        self.bijective = all(part.bijective for part in self.parts)
        self.domain, self.codomain = _reaches(self.parts)

    @property
    def sign(self) -> Any:
        return prod(part.sign for part in self.parts)

    def _call(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Any) -> Any:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        total, dims = None, self.domain.event_dim
        for i, part in enumerate(self.parts):
            after = y if i + 1 == len(self.parts) else part(x)
            term = sum_rightmost(part.log_abs_det_jacobian(x, after), dims - part.domain.event_dim)
            total = term if total is None else total + term
            dims += part.codomain.event_dim - part.domain.event_dim
            x = after
        return F.zeros_like(x) if total is None else total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts})"


def _reaches(parts: Sequence[Transform]) -> tuple[Constraint, Constraint]:
    """The domain and codomain of a chain, with as many dimensions an event as its parts ask for."""
    if not parts:
        return constraints.real, constraints.real
    domain, codomain = parts[0].domain, parts[-1].codomain
    first, last = codomain.event_dim, domain.event_dim
    for part in reversed(parts):
        first = max(first + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
    for part in parts:
        last = max(last + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
    return of_events(domain, first), of_events(codomain, last)


def of_events(constraint: Constraint, dims: int) -> Constraint:
    return (
        constraint if dims == constraint.event_dim else constraints.independent(constraint, dims - constraint.event_dim)
    )


class IndependentTransform(Transform):
    """A transform whose last dimensions are one event. `torch.distributions.IndependentTransform`."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)
        self.bijective = base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Any) -> Any:
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)
