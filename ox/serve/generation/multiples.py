"""What `multipleOf` in JSON schemas costs: the package llguidance makes a state of each remainder, without a limit."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from math import lcm
from typing import Any

MOST_STATES = 100_000  # a second or two
_JOINED = {"$ref", "anyOf", "oneOf"}
_REMARKS = {"title", "description", "default", "examples", "$defs", "definitions", "$schema", "$id"}


def states_of_multiples(schema: Any) -> int:
    """How many states the values of `multipleOf` take at most: their sum, or where several parts of a schema hold for
    one value, their least common multiple. `MOST_STATES + 1` stands for all that is more."""
    parts = list(_objects(schema))  # all of them: a reference may point at any
    values = {each["multipleOf"] for each in parts if type(each.get("multipleOf")) in (int, float)}
    if not all(abs(value) <= MOST_STATES for value in values):  # not a number is no better
        return MOST_STATES + 1
    decimals = [Decimal(str(value)) for value in values if value]  # 0.05 has the states of 5
    joined = any("allOf" in each or (_JOINED & each.keys() and len(each.keys() - _REMARKS) > 1) for each in parts)
    scale = max((_places(each) for each in decimals), default=0)
    total, common = 0, 1
    for each in decimals:
        total += abs(int(each.scaleb(_places(each))))
        common = lcm(common, int(each.scaleb(scale))) if joined else 1
        if max(total, common) > MOST_STATES:
            return MOST_STATES + 1
    return max(total, common)


def _places(value: Decimal) -> int:
    """After the point."""
    return max(0, -int(value.normalize().as_tuple().exponent))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
            stack += value.values()
        elif isinstance(value, list):
            stack += value
