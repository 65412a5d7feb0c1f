"""Sizes that `ox.Dim` declares, at the sizes of an example."""

from __future__ import annotations

from collections.abc import Mapping

from ox.core.declared_size import DeclaredSize
from ox.core.size_expression import evaluate, leaves
from ox.errors import ArgumentError
from ox.graph.size_rules import SizeRange, SizeRules, is_name_of

Sizes = dict[str, int]
_MOST_SHRUNK = 64  # how many times larger than a size the one may be that it follows from


def size_of(dim: str, sizes: Sizes) -> int:
    return int(evaluate(dim.expression if isinstance(dim, DeclaredSize) else dim, sizes))


def declared_in(rules: SizeRules, dim: str) -> str:
    """A size of a file as it was declared: one called ``2 * k`` follows from k if the rules of the file say so."""
    expression = next((each[2] for each in rules.conditions if is_name_of(each) and each[1] == dim), None)
    if expression is None:
        return dim
    bases = tuple(DeclaredSize(name) for name in dict.fromkeys(leaves(expression)))
    return DeclaredSize.following(dim, expression, bases)


def solve(dim: DeclaredSize, size: int, unknown: str, known: Sizes) -> int | None:
    """The smallest value of `unknown` with which `dim` has this size; None where there is none."""
    values = range(_MOST_SHRUNK * (size + 1))
    return next((n for n in values if size_of(dim, {**known, unknown: n}) == size), None)


def check_declared(dim: DeclaredSize, size: int, name: str, sizes: Sizes, declared: Mapping[str, SizeRange]) -> None:
    """The example has sizes that its declaration allows."""
    known = all(base in sizes for base in dim.bases)
    if not known or size_of(dim, sizes) != size:
        raise ArgumentError(
            f"the size '{dim}' of the example '{name}' does not follow from " + " and ".join(map(repr, dim.bases)),
            expected=str(size_of(dim, sizes)) if known else f"a size that {dim} can be",
            got=str(size),
        )
    for base in map(str, dim.bases):
        if base in declared and sizes[base] not in declared[base]:
            raise ArgumentError(
                f"the size '{base}' of the example '{name}' is none that was declared",
                expected=f"{base} in {declared[base]}",
                got=str(sizes[base]),
            )
