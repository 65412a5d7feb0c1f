"""The size of the automata of `multipleOf`."""

from __future__ import annotations

from typing import Any

from rows import rows

from ox.serve.generation.multiples import (
    MOST_STATES,
    largest_multiple,
    states_of_multiples,
    without_large_multiples,
)

TWO = [{"multipleOf": 1009}, {"multipleOf": 1013}]
BOTH = {"$defs": {"a": TWO[0]}, "properties": {"x": {"$ref": "#/$defs/a", **TWO[1]}}}


@rows(("schema", "states"), [
    (True, 1), ({"multipleOf": 0}, 1), ({"properties": {"multipleOf": {"multipleOf": 7}}}, 7),
    ({"multipleOf": 1e-300}, 1), ({"multipleOf": 0.9973}, 9973), ({"multipleOf": 20_000}, 20_000),
    ({"multipleOf": 20_001}, MOST_STATES + 1), ({"multipleOf": 0.123456789}, MOST_STATES + 1),
    ({"multipleOf": 10**5000}, MOST_STATES + 1), ({"multipleOf": float("inf")}, MOST_STATES + 1),
    ({"multipleOf": float("nan")}, MOST_STATES + 1),
    ({"anyOf": TWO, "title": "X"}, 1009 + 1013), ({"allOf": TWO}, MOST_STATES + 1), (BOTH, MOST_STATES + 1),
    ({"allOf": [{"multipleOf": 0.01}, {"multipleOf": 60}]}, 6000),
    ({"enum": [{"multipleOf": 10**9}]}, 1), ({"$ref": "#/a", "a": {"multipleOf": 20_001}}, MOST_STATES + 1),
    ({"anyOf": [{"multipleOf": 1000 + number} for number in range(100)]}, MOST_STATES + 1),
])  # fmt: skip
def test_states(schema: Any, states: int) -> None:
    assert states_of_multiples(schema) == states


@rows(("schema", "smaller"), [
    ({"properties": {"a": {"multipleOf": 5}, "b": {"multipleOf": 10**6, "minimum": 1}}},
     {"properties": {"a": {"multipleOf": 5}, "b": {"minimum": 1}}}),
    ({"allOf": TWO, "enum": [{"multipleOf": 10**6}]}, {"allOf": [{}, {}], "enum": [{"multipleOf": 10**6}]}),
])  # fmt: skip
def test_large_ones_are_left_out(schema: dict[str, Any], smaller: dict[str, Any]) -> None:
    assert without_large_multiples(schema) == smaller


def test_the_largest_one_is_named() -> None:
    properties = {"a": {"multipleOf": 5}, "b": {"items": {"multipleOf": 0.123456789}}, "c": {"multipleOf": 7}}
    assert largest_multiple({"properties": properties}) == ("#/properties/b/items", 0.123456789)
