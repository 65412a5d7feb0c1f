"""Sizes that `ox.Dim` declares, at the sizes of an example."""

from __future__ import annotations

from collections.abc import Mapping

from ox.core.declared_size import DeclaredSize
from ox.core.size_expression import evaluate
from ox.errors import ArgumentError
from ox.graph.size_rules import SizeRange

Sizes = dict[str, int]
_MOST_SHRUNK = 64  # how many times larger than a size the one may be that it follows from


def size_of(dim: str, sizes: Sizes) -> int:
    return int(evaluate(dim.expression if isinstance(dim, DeclaredSize) else dim, sizes))


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
