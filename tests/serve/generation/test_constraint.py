"""Texts of a form: random weights write what they are allowed to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from generation_client import VOCABULARY, write_tokenizer

from ox.errors import ServeError
from ox.generation import SamplingParams
from ox.serve.generation.constraint import Constraints
from ox.serve.generation.json_schema import is_deeper
from ox.serve.generation.request import Constraint
from ox.serve.text.tokenizer import Tokenizer

pytest.importorskip("llguidance")

DRAWN = SamplingParams(seed=3)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Alan"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
# each refers to the next one; so many end a process by its stack
CHAIN = {str(i): {"type": "object", "properties": {"x": {"$ref": f"#/$defs/{i + 1}"}}} for i in range(1000)}
CHAIN["1000"] = {"type": "string"}


@pytest.mark.parametrize("sampling", [SamplingParams(temperature=0), DRAWN], ids=["greedy", "drawn"])
def test_a_schema(client_of: Any, sampling: SamplingParams) -> None:
    answer = client_of().ask([1, 2], 200, sampling=sampling, constraint=Constraint("json_schema", SCHEMA))
    value = json.loads(answer.text)
    assert answer.events[-1].finish_reason == "stop"
    assert set(value) == {"name", "age"} and value["name"] in ("Ada", "Alan") and 0 <= value["age"] <= 99


def test_expressions_and_choices_beside_free_texts(client_of: Any) -> None:
    client = client_of()
    free = client.send([1, 2], 50, ignore_eos=True)
    number = client.send([1, 2], 50, sampling=DRAWN, constraint=Constraint("regex", r"[1-9][0-9]{2}-[a-f]+z"))
    chosen = client.send([1, 2], 50, sampling=DRAWN, constraint=Constraint("choice", ["a.b", "a.c", "xyz"]), logprobs=2)
    assert re.fullmatch(r"[1-9][0-9]{2}-[a-f]+z", number.wait().text)
    assert chosen.wait().text in ("a.b", "a.c", "xyz")
    assert {event.finish_reason for event in (number.events[-1], chosen.events[-1])} == {"stop"}
    assert all(event.logprob is not None and event.logprob > -50 for event in chosen.events)  # before what is forbidden
    assert free.wait().tokens == client_of().ask([1, 2], 50, ignore_eos=True).tokens


def test_a_form_survives_preemption(client_of: Any) -> None:
    form = Constraint("regex", "[a-z]{120}[0-9]{30}")
    small = client_of(texts=2)
    answers = [small.send([i], 200, sampling=DRAWN, index=i, constraint=form) for i in range(4)]
    for i, answer in enumerate(answers):
        assert re.fullmatch("[a-z]{120}[0-9]{30}", answer.wait().text)
        assert answer.tokens == client_of().ask([i], 200, sampling=DRAWN, index=i, constraint=form).tokens
    assert small.engine.stats()["preemptions"] > 0


@pytest.mark.parametrize(
    "constraint, message",
    [
        (
            Constraint("json_schema", {"type": "number", "minimum": 2, "maximum": 1}),
            "no text can be of this JSON schema",
        ),
        (Constraint("json_schema", {"type": "nothing"}), "invalid JSON schema of a text"),
        (Constraint("json_schema", {"$ref": "#/nowhere"}), "invalid JSON schema of a text"),
        (Constraint("json_schema", {"$ref": "http://a/b"}), "this '$ref' of JSON schema is not supported"),
        (
            Constraint("json_schema", {"items": {"contains": {}}}),
            "'contains' of JSON schema is not supported; in #/items",
        ),
        (Constraint("json_schema", {"$ref": "#"}), "has no end: a part of it requires itself"),
        (
            Constraint(
                "json_schema", {"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}]}
            ),
            "has no end: a part of it requires itself",
        ),
        (
            Constraint("json_schema", {"type": "object", "properties": {f"p{i}": {} for i in range(3000)}}),
            "is too large; expected at most 2,048 properties of an object; got 3,000 of all objects",
        ),
        (
            Constraint("json_schema", {"$ref": "#/$defs/0", "$defs": CHAIN}),
            "is too large; expected at most 1,200 levels",
        ),
        (
            Constraint("json_schema", {"items": {"type": "integer", "multipleOf": 187848099}}),
            "this 'multipleOf' of JSON schema is not supported; in #/items; expected multiples of at most 20,000",
        ),
        (
            Constraint(
                "json_schema",
                {"$ref": "#/components/0", "components": json.loads(json.dumps(CHAIN).replace("$defs", "components"))},
            ),
            "is too large; expected at most 1,200 levels",
        ),
        (Constraint("json_schema", {"$ref": "#/default/a", "default": {"a": {}}}), "the $ref of a schema inside"),
        (
            Constraint("json_schema", {"type": "number", "minimum": -1e300, "maximum": 1e300}),
            "this 'minimum' or 'maximum' of JSON schema is not supported",
        ),
        (
            Constraint("json_schema", {"anyOf": [{"enum": [0, {"a": [512 - 2**63]}]}]}),  # ended the process
            "this 'enum' of JSON schema is not supported; in #/anyOf/0; expected numbers that float64 has exactly",
        ),
        (Constraint("json_schema", {"type": "string", "pattern": "("}), "( ^ error: unclosed group"),
        (Constraint("json_schema", {"enum": ["a" * (1 << 20)]}), "is too long; expected at most 262,144 characters"),
        (Constraint("json_schema", "text"), "invalid JSON schema of a text; expected an object"),
        (Constraint("grammar", 'start: %json {"type": "object"}'), "a JSON schema in the grammar of a text is not"),
        (
            Constraint("grammar", "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(4000)) + 'r4000: "a"'),
            "is too large; expected at most 2,000 rules, brackets and repetitions; got 4,002",
        ),
        (Constraint("regex", "a("), "no text can be of this regular expression"),
        (Constraint("regex", "a" * (1 << 19)), "is too long; expected at most 262,144 characters"),
        (Constraint("poem", "a"), "expected json_schema, json_object, regex, choice, grammar"),  # type: ignore[arg-type]
    ],
)
def test_impossible_forms(client_of: Any, constraint: Constraint, message: str) -> None:
    with pytest.raises(ServeError) as caught:
        client_of().send([1], constraint=constraint)
    assert message in caught.value.one_line() and caught.value.status == 400


def test_a_tokenizer_with_a_token_that_is_too_long(tmp_path: Path) -> None:
    """The package panics: an exception that is not an Exception."""
    document = json.loads(write_tokenizer(tmp_path / "tokenizer.json").read_text())
    document["model"]["vocab"]["a" * 2000] = VOCABULARY
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    constraints = Constraints(Tokenizer(tmp_path / "tokenizer.json"), VOCABULARY + 1, (VOCABULARY - 1,))
    with pytest.raises(ServeError, match="texts of a form need another tokenizer"):
        constraints.matcher(Constraint("json_object"))


def test_what_restricts_nothing(client_of: Any) -> None:
    names = {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": False}
    password = {"type": "string", "format": "password", "maxLength": 1}
    schema = {"type": "object", "properties": {"a": password, "b": names}, "required": ["a", "b"],
              "additionalProperties": False}  # fmt: skip
    answer = client_of().ask([1], 200, constraint=Constraint("json_schema", schema))
    assert json.loads(answer.text).keys() == {"a", "b"}


def test_a_large_multiple_that_is_not_strict(client_of: Any) -> None:
    schema = {"enum": [{"multipleOf": 2}, 3], "multipleOf": 187848099}
    answer = client_of().ask([1], 200, constraint=Constraint("json_schema", schema, strict=False))
    assert json.loads(answer.text) in schema["enum"]  # type: ignore[operator]


@pytest.mark.parametrize("levels", [1, 128, 129])
def test_levels_of_a_schema(levels: int) -> None:
    """One limit in all versions of Python, whose own differ."""
    value: Any = {}
    for level in range(levels - 1):
        value = {"a": 1, "b": value} if level % 2 else [1, value]
    assert is_deeper(value, 128) is (levels > 128)
