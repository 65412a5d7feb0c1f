"""Schemas as parts of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from rows import rows

from ox.errors import ServeError
from ox.serve.generation.grammar_source import grammars
from ox.serve.generation.json_schema import MOST_CHARACTERS, MOST_OF_PLACES, References, check_size, is_endless, moved
from ox.serve.generation.request import Constraint

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}


@rows("schema", [
    {**CITY, "$id": "http://[#"},
    {**CITY, "$id": "http://x", "properties": {"city": {"type": "string"}, "n": {"$ref": "http://[a"}}},
    {**CITY, "$id": "http://x", "properties": {"city": {"$id": "http://[q", "type": "string", "$anchor": "a"}}},
])  # fmt: skip
def test_addresses_that_are_wrong(schema: dict[str, Any]) -> None:
    """They are those of other documents."""
    assert References(schema).types("city") == {"string"}
    assert moved(schema, "#/$defs/a")["properties"]["city"] == {"type": "string"}


@rows(("schema", "place"), [
    ({"properties": {"x": {"$ref": "#/default"}}, "default": {}}, "#/properties/x"),
    ({"properties": {"x": {"$ref": "#/x/0"}}, "x": [{}]}, "#/properties/x"),
    ({"$ref": "#/components/schemas/a", "components": {"schemas": {"a": {}}}}, None),
    ({"$ref": "#/$defs/a~1", "$defs": {"a/": True}}, None), ({"$ref": "#"}, None), ({"$ref": "http://a/b"}, None),
])  # fmt: skip
def test_references_to_data(schema: dict[str, Any], place: str | None) -> None:
    """The parts of data are not counted as parts of the schema, whose number is limited."""
    assert References(schema).into_data() == place


def test_references_are_percent_encoded() -> None:
    for reference in ("#/$defs/a~1b%20c%23%25%C3%A9", "#/$defs/a~1b c%23%25é"):
        schema = {"$ref": reference, "$defs": {"a/b c#%é": {"const": 7}}}
        assert moved(schema, "#/$defs/call0")["$ref"] == "#/$defs/call0/$defs/a~1b%20c%23%25%C3%A9"


@rows("identity", ["urn:uuid:1", "tag:x", "https://a/b", "a/b.json", "urn:a:b#"])
def test_references_below_an_identity(identity: str) -> None:
    inner = {"$id": f"{identity}/2".replace("#", ""), "$ref": "#/$defs/b", "$defs": {"b": {}}}
    schema = {"$id": identity, "properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}, "inner": inner}}
    copied = moved(schema, "#/$defs/f")
    assert copied["properties"]["x"]["$ref"] == "#/$defs/f/$defs/a"
    assert copied["$defs"]["inner"]["$ref"] == "#/$defs/f/$defs/inner/$defs/b"


NAMES = ["Größe", "L<Int>", "a b", "100%", "a%20b", "C#", 'a"b', "日本", "List[int]", "{k}", "a\\b", "a?b&c", "/~1"]


@rows("name", NAMES)
def test_references_to_names_of_any_characters(name: str) -> None:
    """As they are, or percent-encoded; at the top, in a part, and in a schema that was moved."""
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    from llguidance import LLMatcher

    escaped = name.replace("~", "~0").replace("/", "~1")
    for reference in (escaped, quote(escaped, safe="~")):
        inner = {"$defs": {name: {"const": 7}}, "properties": {"x": {"$ref": f"#/$defs/o/$defs/{reference}"}}}
        part = {"type": "object", "$defs": {"o": inner}, "$ref": "#/$defs/o"}
        top = {"$defs": {name: {"const": 7}}, "$ref": f"#/$defs/{reference}"}
        for schema in (top, part, moved(top, "#"), moved(part, "#")):
            (grammar,) = grammars(Constraint("json_schema", schema), LLMatcher, lambda text: None)
            assert not LLMatcher.validate_grammar(json.dumps({"grammars": [grammar]}))


def test_names_that_are_long() -> None:
    """The place of a part has the names of all parts around it."""
    schema: dict[str, Any] = {}
    for _ in range(60):
        schema = {"properties": {"a" * (MOST_CHARACTERS // 50): schema}}
    with pytest.raises(ServeError, match=r"is too long\s+expected at most 262,144 characters"):
        check_size(schema)


LONG = "a" * 10_000
MUCH: list[Callable[[str], dict[str, Any]]] = [
    lambda text: {"const": text}, lambda text: {"enum": ["a", text]}, lambda text: {"pattern": text},
    lambda text: {"properties": {"a": {}, text: {}}}, lambda text: {"items": {"const": [text]}},
    lambda text: {"enum": {text: 1}}, lambda text: {"const": {text: 1}},
]  # fmt: skip


@rows("make", MUCH, ids=[str(make("b")) for make in MUCH])
def test_values_that_are_long(make: Callable[[str], dict[str, Any]]) -> None:
    """A text that is held to one of them would stop all others at each of its tokens."""
    check_size(make(LONG[:-8]))
    with pytest.raises(ServeError, match=r"(?s)of JSON schema is too long.*in +tool #.*at most 10,000.*got +10,0"):
        check_size(make(LONG + "a"), "tool")


def test_each_reference_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    target = References.target
    monkeypatch.setattr(References, "target", lambda self, each: found.append(each["$ref"]) or target(self, each))
    chain = {f"a{number}": {"$ref": f"#/$defs/a{number + 1}"} for number in range(30)}
    assert is_endless({"$defs": {**chain, "a30": {}}, "$ref": "#/$defs/a0"}) is None and len(found) == 31
    assert is_endless({"$defs": {**chain, "a30": {"$ref": "#"}}, "$ref": "#/$defs/a0"}) == "#"


def test_long_names_above_many_parts() -> None:
    name, many = "a" * (MOST_CHARACTERS // 2), 2 * MOST_OF_PLACES // MOST_CHARACTERS
    makers: list[Callable[[int], dict[str, Any]]] = [
        lambda count: {"$defs": {name: {"anyOf": [{}] * count}}},
        lambda count: {"$id": f"http://{name}", "anyOf": [{}] * count},
        lambda count: {"$defs": {name: {"$anchor": "a"}}, "anyOf": [{"$ref": "#a"}] * count},
    ]
    for make in makers:
        check_size(make(many - 3))
        with pytest.raises(ServeError, match="too many parts below long names"):
            check_size(make(many))
