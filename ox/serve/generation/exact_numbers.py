"""Numbers in JSON schemas that the package llguidance, which computes with float64 and 64-bit integers, gets right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ox.errors import ServeError
from ox.serve.generation.json_schema import map_schema, subschemas

LIMIT = 2**63  # an integer up to -2^63 even ends the process: the package calls itself until the stack is full


def with_exact_numbers(schema: Any, strict: bool, where: str = "") -> Any:
    """A schema that the package holds texts to exactly.

    Args:
        strict: refuse keywords whose numbers become others, instead of leaving them out.
        where: which parameter of the request has the schema, for errors.

    Raises:
        ServeError: there are some, and `strict` (400).
    """
    for pointer, _, each in subschemas(schema):
        for keyword, value in each.items():
            number = _inexact(keyword, value)
            if number is not None and not strict:
                return map_schema(schema, lambda each: {k: v for k, v in each.items() if _inexact(k, v) is None})
            if number is not None:
                raise ServeError(
                    f"this '{keyword}' of JSON schema is not supported", where=f"{where} {pointer}".strip(),
                    expected="numbers that float64 has exactly, between -2^63 and 2^63", got=f"{number!r}"[:100],
                    hint='strings, or "strict": false, which leaves the keyword out',
                )  # fmt: skip
    return schema


def _inexact(keyword: str, value: Any) -> float | None:
    """The number of a keyword that would become another one; None for none."""
    if keyword in ("const", "enum"):
        return next((each for each in _numbers(value) if abs(each) >= LIMIT or float(each) != each), None)
    if keyword not in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        return None
    for bound in _numbers(value):
        # beyond all integers of the package, which makes an upper bound of 2^63 - 1 of larger ones
        wide = bound >= LIMIT - 1 if "max" in keyword.lower() else bound <= -LIMIT
        if not wide and (abs(bound) >= LIMIT or float(bound) != bound):
            return bound
    return None


def _numbers(value: Any) -> Iterator[float]:
    """All numbers in a value of JSON."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list):
            stack += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield value
