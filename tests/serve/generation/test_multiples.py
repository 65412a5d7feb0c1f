"""The size of the automata of `multipleOf`."""

from __future__ import annotations

from typing import Any

from rows import rows

from ox.serve.generation.multiples import MOST_STATES, states_of_multiples

TWO = [{"multipleOf": 1009}, {"multipleOf": 1013}]
BOTH = {"$defs": {"a": TWO[0]}, "properties": {"x": {"$ref": "#/$defs/a", **TWO[1]}}}


@rows(("schema", "states"), [
    (True, 1), ({"multipleOf": 0}, 1), ({"properties": {"multipleOf": {"multipleOf": 7}}}, 7),
    ({"multipleOf": 1e-300}, 1), ({"multipleOf": 0.9973}, 9973), ({"multipleOf": 100_000}, 100_000),
    ({"multipleOf": 100_001}, MOST_STATES + 1), ({"multipleOf": 0.123456789}, MOST_STATES + 1),
    ({"multipleOf": 10**5000}, MOST_STATES + 1), ({"multipleOf": float("inf")}, MOST_STATES + 1),
    ({"multipleOf": float("nan")}, MOST_STATES + 1),
    ({"anyOf": TWO, "title": "X"}, 1009 + 1013), ({"allOf": TWO}, MOST_STATES + 1), (BOTH, MOST_STATES + 1),
    ({"allOf": [{"multipleOf": 0.01}, {"multipleOf": 60}]}, 6000),
    ({"$ref": "#/other/0", "other": [{"multipleOf": 100_001}]}, MOST_STATES + 1),
    ({"anyOf": [{"multipleOf": 1000 + number} for number in range(100)]}, MOST_STATES + 1),
])  # fmt: skip
def test_states(schema: Any, states: int) -> None:
    assert states_of_multiples(schema) == states
