"""Sizes of tensors as polynomials of what varies: B for the rows of a batch, a symbol for every other size that is left
open. A size that is known is a plain int."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import count
from typing import TypeAlias

from ox.serve.config.dimension_limits import LONGEST
from ox.serve.config.model_config import MOST as MOST_ROWS

# What a symbol stands for is told by its number modulo 4.
# A size of an input, 1 or more; any number; a number that follows from B, nobody knows how; a size, perhaps 0.
SIZE, VALUE, BATCHED, COUNT = 0, 1, 2, 3
BATCH_SYMBOL = 2
NARROW, WIDE = 1 << 31, 1 << 62  # numbers below these are what they seem in int32, in int64
MOST_TERMS, MOST_FACTORS, LARGEST_FACTOR = 12, 16, 1 << 40

Monomial: TypeAlias = tuple[int, ...]  # symbols in order, one for each factor


class TooIntricate(Exception):
    """A size has outgrown what is followed."""


class Polynomial:
    """A sum of products of symbols, never a plain number."""

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __add__(self, other: Size) -> Size:
        terms = dict(self.terms)
        for monomial, factor in _terms(other):
            terms[monomial] = terms.get(monomial, 0) + factor
        return _made(terms)

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, int):
            return self if other == 1 else _made({monomial: factor * other for monomial, factor in self.terms})
        terms: dict[Monomial, int] = {}
        for one, first in self.terms:
            for two, second in other.terms:
                monomial = tuple(sorted(one + two))
                terms[monomial] = terms.get(monomial, 0) + first * second
        return _made(terms)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + -other

    def __rsub__(self, other: Size) -> Size:
        return -self + other


Size: TypeAlias = int | Polynomial
B = Polynomial((((BATCH_SYMBOL,), 1),))


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return size.terms if isinstance(size, Polynomial) else (((), size),)


def _made(terms: dict[Monomial, int]) -> Size:
    kept = tuple(sorted((monomial, factor) for monomial, factor in terms.items() if factor))
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    if len(kept) > MOST_TERMS or any(
        len(monomial) > MOST_FACTORS or abs(factor) > LARGEST_FACTOR for monomial, factor in kept
    ):
        raise TooIntricate
    return Polynomial(kept)


def has_batch(size: Size) -> bool:
    """Whether it varies with the rows of a batch."""
    return isinstance(size, Polynomial) and any(symbol & 3 == BATCHED for terms in size.terms for symbol in terms[0])


def is_size(size: Size) -> bool:
    """Whether it is certainly 1 or more, unless the numbers of the runtime overflow."""
    if isinstance(size, int):
        return size > 0
    return is_count(size) and any(not any(symbol & 3 == COUNT for symbol in monomial) for monomial, _ in size.terms)


def is_count(size: Size) -> bool:
    """Whether it is certainly 0 or more, unless the numbers of the runtime overflow."""
    if isinstance(size, int):
        return size >= 0
    return all(factor > 0 and all(map(_counts, monomial)) for monomial, factor in size.terms)


def _counts(symbol: int) -> bool:
    return symbol == BATCH_SYMBOL or symbol & 3 in (SIZE, COUNT)


def is_exact(size: Size, limit: int = NARROW) -> bool:
    """Whether a runtime that has added and multiplied up to it has this number, and not what is left of it in too few
    bits. A symbol by itself is what it is."""
    if isinstance(size, Polynomial) and len(size.terms) == 1:
        monomial, factor = size.terms[0]
        if factor == 1 and len(monomial) == 1:
            return True
    total = 0
    for monomial, factor in _terms(size):
        for symbol in monomial:
            if symbol != BATCH_SYMBOL and symbol & 3 != SIZE:
                return False
            factor *= MOST_ROWS if symbol == BATCH_SYMBOL else LONGEST
        total += abs(factor)
    return total < limit


def product(sizes: Iterable[Size]) -> Size:
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


def divide(size: Size, by: Size) -> Size | None:
    """The quotient, if it is one without a remainder whatever the symbols stand for."""
    if by == 1:
        return size
    if by == 0:
        return None
    if isinstance(size, int) and isinstance(by, int):
        return size // by if size % by == 0 else None
    leading, divisor = max(_terms(by), key=_degree)
    quotient: Size = 0
    for _ in range(MOST_TERMS):
        if size == 0:
            return quotient
        monomial, factor = max(_terms(size), key=_degree)
        rest = _without(monomial, leading)
        if rest is None or factor % divisor:
            return None
        part = _made({rest: factor // divisor})
        quotient, size = quotient + part, size - part * by
    return None


def _degree(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    return len(term[0]), term[0]


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    rest = list(monomial)
    for symbol in divisor:
        if symbol not in rest:
            return None
        rest.remove(symbol)
    return tuple(rest)


def batch_factor(size: Size) -> Size | None:
    """q of a size that is B·q, where q does not know of B."""
    if not isinstance(size, Polynomial):
        return None
    quotient = divide(size, B)
    return None if quotient is None or has_batch(quotient) else quotient


class Symbols:
    """Makes symbols; an expression that was seen before gets the symbol that it had."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._known: dict[Hashable, Polynomial] = {}

    def fresh(self, kind: int = COUNT) -> Polynomial:
        return Polynomial((((4 * next(self._numbers) + kind,), 1),))

    def of(self, expression: Hashable, kind: int = COUNT) -> Polynomial:
        known = self._known.get((kind, expression))
        if known is None:
            known = self._known[kind, expression] = self.fresh(kind)
        return known

    def result(self, name: str, *operands: Size) -> Polynomial:
        """What an operation gives that polynomials cannot say."""
        if any(map(has_batch, operands)):
            return self.of((name, operands), BATCHED)
        return self.of((name, operands), COUNT if all(map(is_count, operands)) else VALUE)
