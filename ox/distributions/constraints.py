"""Sets of valid values: `check` tests each value. `torch.distributions.constraints`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ox import functions as F
from ox.errors import ArgumentError
from ox.functions.creation import full


class Constraint:
    """A set of values. `check(value)` gives a bool for each event, over the last `event_dim` dimensions."""

    is_discrete = False
    event_dim = 0

    def __init__(self, name: str, check: Callable[[Any], Any], event_dim: int = 0, is_discrete: bool = False) -> None:
        self._name, self._check, self.event_dim, self.is_discrete = name, check, event_dim, is_discrete

    def check(self, value: Any) -> Any:
        """A bool for each event: whether it is in the set."""
        return self._check(value)

    def __repr__(self) -> str:
        return self._name


class _Interval(Constraint):
    """Numbers between bounds."""

    def __init__(
        self, name: str, check: Callable[[Any], Any], lower: Any = None, upper: Any = None, discrete: bool = False
    ) -> None:
        super().__init__(name, check, 0, discrete)
        self.lower_bound, self.upper_bound = lower, upper


class _Dependent(Constraint):
    """A set that depends on parameters, as a class does not know."""

    def __init__(self) -> None:
        super().__init__("dependent", self._unknown)

    @staticmethod
    def _unknown(value: Any) -> Any:
        raise ArgumentError(
            "this constraint depends on the parameters of the distribution", hint="the support of an instance"
        )

    def __call__(self, *, is_discrete: bool = False, event_dim: int = 0) -> _Dependent:
        return self


class dependent_property(property):
    """A property of a distribution that is a constraint. `torch.distributions.constraints.dependent_property`."""

    def __init__(self, fn: Any = None, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> dependent_property:
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def greater_than(lower_bound: Any) -> Constraint:
    """Numbers above a bound."""
    return _Interval(f"GreaterThan(lower_bound={lower_bound})", lambda x: x > lower_bound, lower_bound)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """Numbers not below a bound."""
    return _Interval(f"GreaterThanEq(lower_bound={lower_bound})", lambda x: x >= lower_bound, lower_bound)


def less_than(upper_bound: Any) -> Constraint:
    """Numbers below a bound."""
    return _Interval(f"LessThan(upper_bound={upper_bound})", lambda x: x < upper_bound, None, upper_bound)


def _bounds(name: str, low: Any, high: Any) -> str:
    return f"{name}(lower_bound={low}, upper_bound={high})"


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers between two bounds, and these."""
    inside = lambda x: (x >= lower_bound) & (x <= upper_bound)  # noqa: E731
    return _Interval(_bounds("Interval", lower_bound, upper_bound), inside, lower_bound, upper_bound)


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Numbers between two bounds, the upper of which is not among them."""
    inside = lambda x: (x >= lower_bound) & (x < upper_bound)  # noqa: E731
    return _Interval(_bounds("HalfOpenInterval", lower_bound, upper_bound), inside, lower_bound, upper_bound)


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Whole numbers between two bounds, and these."""
    inside = lambda x: (x % 1 == 0) & (x >= lower_bound) & (x <= upper_bound)  # noqa: E731
    return _Interval(_bounds("IntegerInterval", lower_bound, upper_bound), inside, lower_bound, upper_bound, True)


class independent(Constraint):
    """A constraint of numbers as one of vectors: all of them lie in it."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        dims = tuple(range(-reinterpreted_batch_ndims, 0))
        super().__init__(
            f"Independent({base_constraint}, {reinterpreted_batch_ndims})",
            lambda x: base_constraint.check(x).all(dims) if dims else base_constraint.check(x),
            base_constraint.event_dim + reinterpreted_batch_ndims,
            base_constraint.is_discrete,
        )
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims


def _lower(x: Any) -> Any:
    return (F.tril(x) == x).flatten(-2).all(-1)


def _symmetric(x: Any) -> Any:
    return F.isclose(x, x.mT, atol=1e-6).flatten(-2).all(-1)


def _definite(x: Any) -> Any:
    from ox.linalg import cholesky_ex

    return _symmetric(x) & (cholesky_ex(x).info == 0)


def _simplex(x: Any) -> Any:
    return (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6)


def _one_hot(x: Any) -> Any:
    return ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1)


real = Constraint("Real()", lambda x: x == x)
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), 0, True)
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
nonnegative_integer = Constraint("IntegerGreaterThan(lower_bound=0)", lambda x: (x % 1 == 0) & (x >= 0), 0, True)
positive_integer = Constraint("IntegerGreaterThan(lower_bound=1)", lambda x: (x % 1 == 0) & (x >= 1), 0, True)
real_vector = independent(real, 1)
simplex, one_hot = Constraint("Simplex()", _simplex, 1), Constraint("OneHot()", _one_hot, 1, True)
square = Constraint("Square()", lambda x: full(x.shape[:-2], x.shape[-2] == x.shape[-1]), 2)
symmetric, lower_triangular = Constraint("Symmetric()", _symmetric, 2), Constraint("LowerTriangular()", _lower, 2)
lower_cholesky = Constraint("LowerCholesky()", lambda x: _lower(x) & (x.diagonal(0, -2, -1) > 0).all(-1), 2)
positive_definite = Constraint("PositiveDefinite()", _definite, 2)
dependent = _Dependent()


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint depends on parameters."""
    return isinstance(constraint, (_Dependent, dependent_property))


__all__ = [
    "Constraint",
    "boolean",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "real",
    "real_vector",
    "simplex",
    "square",
    "symmetric",
    "unit_interval",
]
