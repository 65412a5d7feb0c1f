"""Sizes as polynomials of named sizes: ``2·batch·length + 1``. Two that are equal are equal in every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Monomial = tuple[str, ...]  # names in order, one for each power


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of names, with whole factors. Values are compared and hashed by what they are."""

    terms: tuple[tuple[Monomial, int], ...]

    @classmethod
    def of(cls, size: int | str) -> Polynomial:
        """A number or a name."""
        return cls._sum([((), size)] if isinstance(size, int) else [((size,), 1)])

    @classmethod
    def _sum(cls, terms: Iterable[tuple[Monomial, int]]) -> Polynomial:
        found: Counter[Monomial] = Counter()
        for names, factor in terms:
            found[names] += factor
        return cls(tuple(sorted((names, factor) for names, factor in found.items() if factor)))

    @property
    def number(self) -> int | None:
        """The number that it is in every run; None where it depends on names."""
        if not self.terms:
            return 0
        return self.terms[0][1] if self.terms[0][0] == () and len(self.terms) == 1 else None

    def __add__(self, other: Polynomial) -> Polynomial:
        return self._sum([*self.terms, *other.terms])

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self._sum([*self.terms, *((names, -factor) for names, factor in other.terms)])

    def __mul__(self, other: Polynomial) -> Polynomial:
        return self._sum(
            (tuple(sorted((*m, *n))), factor * more) for m, factor in self.terms for n, more in other.terms
        )

    def divided(self, other: Polynomial) -> Polynomial | None:
        """The quotient, where it is a polynomial without a rest; else None. Long division by the highest products."""
        if not other.terms:
            return None
        names, divisor = max(other.terms, key=_order)
        rest, quotient = self, Polynomial(())
        while rest.terms:
            product, factor = max(rest.terms, key=_order)
            left = Counter(product)
            left.subtract(names)
            if factor % divisor or any(count < 0 for count in left.values()):
                return None
            part = Polynomial(((tuple(sorted(left.elements())), factor // divisor),))
            quotient, rest = quotient + part, rest - part * other
        return quotient

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value at these sizes. Raises KeyError for a name without one."""
        total = 0
        for names, factor in self.terms:
            for name in names:
                factor *= sizes[name]
            total += factor
        return total

    def __str__(self) -> str:
        return " + ".join("·".join([*([str(f)] if f != 1 or not m else []), *m]) for m, f in self.terms) or "0"


def _order(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    """By degree, then by names: a product of two terms stands where the terms stand."""
    return len(term[0]), term[0]


def product(sizes: Iterable[Polynomial]) -> Polynomial:
    """Of no sizes, 1."""
    result = Polynomial.of(1)
    for size in sizes:
        result = result * size
    return result
