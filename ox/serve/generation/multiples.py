"""What `multipleOf` in JSON schemas costs: the package llguidance makes a state of each remainder, without a limit."""

from __future__ import annotations

from decimal import Decimal
from math import lcm
from typing import Any

from ox.serve.generation.json_schema import map_schema, subschemas

MOST_STATES = 20_000  # a quarter of a second; a copy of more takes milliseconds of the event loop
_JOINED = {"$ref", "anyOf", "oneOf"}
_REMARKS = {"title", "description", "default", "examples", "$defs", "definitions", "$schema", "$id"}


def states_of_multiples(schema: Any) -> int:
    """How many states the values of `multipleOf` take at most: their sum, or where several parts of a schema hold for
    one value, their least common multiple. `MOST_STATES + 1` stands for all that is more."""
    parts = [each for _, _, each in subschemas(schema)]  # all of them: a reference may point at any
    if any(_states(each) > MOST_STATES for each in parts):
        return MOST_STATES + 1
    decimals = {Decimal(str(each["multipleOf"])) for each in parts if _states(each)}
    joined = any("allOf" in each or (_JOINED & each.keys() and len(each.keys() - _REMARKS) > 1) for each in parts)
    scale = max(map(_places, decimals), default=0)
    total, common = 0, 1
    for each in decimals:
        total += abs(int(each.scaleb(_places(each))))
        common = lcm(common, int(each.scaleb(scale))) if joined else 1
        if max(total, common) > MOST_STATES:
            return MOST_STATES + 1
    return max(total, common)


def largest_multiple(schema: Any) -> tuple[str, Any]:
    """The JSON pointer of the part whose `multipleOf` takes the most states, and its value; the schema has one."""
    parts = [(pointer, each) for pointer, _, each in subschemas(schema)]
    pointer, part = max(parts, key=lambda each: _states(each[1]))
    return pointer, part["multipleOf"]


def without_large_multiples(schema: Any) -> Any:
    """A copy without those `multipleOf` that take too many states, and without all where the others together do."""
    most = MOST_STATES

    def change(each: dict[str, Any]) -> dict[str, Any]:
        return {name: each[name] for name in each if name != "multipleOf"} if _states(each) > most else each

    smaller = map_schema(schema, change)
    if states_of_multiples(smaller) > MOST_STATES:
        most = 0
        smaller = map_schema(schema, change)
    return smaller


def _states(schema: dict[str, Any]) -> int:
    """Those of its own `multipleOf`: 0.05 has the states of 5, 0 and no number have none."""
    value = schema.get("multipleOf")
    if type(value) not in (int, float) or not value:
        return 0
    if not abs(value) <= MOST_STATES:  # also of what is not a number
        return MOST_STATES + 1
    decimal = Decimal(str(value))
    return min(abs(int(decimal.scaleb(_places(decimal)))), MOST_STATES + 1)


def _places(value: Decimal) -> int:
    """After the point."""
    return max(0, -int(value.normalize().as_tuple().exponent))
