"""The declarations of parameters: their limits, the dialects that have them, and the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from rows import rows

from ox.serve.protocol.ollama import handlers as ollama
from ox.serve.protocol.text.fields import Fields, ParameterError
from ox.serve.protocol.text.parameter import DIALECTS, Parameter, names_of
from ox.serve.protocol.text.parameters import PARAMETERS, names_in, parameters_in, schemas_in

Ask = Callable[..., tuple[int, Any]]
MODEL: Any = SimpleNamespace(engine=SimpleNamespace(vocab_size=100))
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
BASE: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1}),
    "chat": ("/v1/chat/completions", CHAT),
    "responses": ("/v1/responses", {"model": "tiny", "input": "Hi", "max_output_tokens": 16}),
    "messages": ("/v1/messages", CHAT),
    "ollama": ("/api/chat", {"model": "tiny", "messages": CHAT["messages"], "stream": False}),
    "generate": ("/v2/models/tiny/generate", {"text_input": "a", "max_tokens": 1}),
}
# where the example of the schema is no good one, or is answered with events
VALUES = {"guided_grammar": 'start: "a"', "previous_response_id": None, "stream": False}
GENERATE = {"id", "parameters", "sampling_parameters", "exclude_input_in_output"}  # fields that are not parameters
SAMPLES = {"string": "a", "object": {}, "array": [], "boolean": True, "integer": 1, "number": 1.0}
LIMITED = [each for each in PARAMETERS if each.read is not None and "maximum" in each.schema]


def sample(schema: Mapping[str, Any]) -> Any:
    """A value of a schema."""
    if "enum" in schema:
        return next(iter(schema["enum"]), None)
    if "properties" in schema and "required" in schema:
        return {name: sample(schema["properties"][name]) for name in schema["required"]}
    if "anyOf" in schema:
        return sample(schema["anyOf"][0])
    kind = schema["type"]
    return SAMPLES[kind if isinstance(kind, str) else kind[0]]


def put(document: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The document with a value under a name, which may be of a field in an object."""
    outer, _, inner = name.rpartition(".")
    return {**document, outer: {inner: value}} if outer else {**document, name: value}


@rows("parameter", LIMITED, ids=[f"{each.name} {' '.join(each.names)}" for each in LIMITED])
def test_limits_are_those_of_the_schema(parameter: Parameter) -> None:
    low = parameter.schema.get("minimum", parameter.schema.get("exclusiveMinimum"))
    high, above = parameter.schema["maximum"], "exclusiveMinimum" in parameter.schema
    assert parameter.read is not None
    for value in (high, *(() if above else (low,))):
        parameter.read(Fields({parameter.name: value}), MODEL)
    for value in (low - 1, high + 1, "1", True, *((low,) if above else ())):
        with pytest.raises(ParameterError) as wrong:
            parameter.read(Fields({parameter.name: value}, names={parameter.name: "theirs"}), MODEL)
        assert wrong.value.param == "theirs"


def test_names() -> None:
    assert names_of("a", "chat responses=b ollama=options.a") == {"chat": "a", "responses": "b", "ollama": "options.a"}
    assert names_in("responses")["max_tokens"] == "max_output_tokens" and "temperature" not in names_in("responses")
    assert schemas_in("ollama")["options"]["properties"]["num_predict"]["maximum"] == (1 << 31) - 1
    for dialect in DIALECTS:  # a second declaration of a name is for other dialects
        declared = [each for each in PARAMETERS if dialect in each.names]
        assert len(declared) == len(parameters_in(dialect)) == len({each.names[dialect] for each in declared})


@rows("dialect", list(BASE))
def test_each_is_known_where_it_is_declared(scripted: Any, connect: Any, dialect: str) -> None:
    """It is taken, or refused by its own name; the header calls only another one unknown."""
    path, base = BASE[dialect]
    with connect(scripted) as client:
        for parameter in parameters_in(dialect).values():
            name = parameter.names[dialect]
            value = VALUES[name] if name in VALUES else sample(parameter.schema)
            body = {"unheard_of": 1, **(base if name in base else put(base, name, value))}
            target = path
            if dialect == "ollama" and name in ollama.OF_TEXTS:
                target, body = "/api/generate", {"prompt": "a", **body, "messages": None}
            status, headers, answer = client.ask("POST", target, json.dumps(body).encode())
            if status == 200:
                assert headers.get("ox-warning", "").endswith("unknown=unheard_of"), name
            else:
                assert status == 400 and f"'{name}" in answer.decode(), (name, answer)


def test_the_openapi_document_has_each_and_no_others(ask: Ask) -> None:
    paths = ask("GET", "/openapi.json")[1]["paths"]
    for dialect, (path, _) in BASE.items():
        routes = [path.replace("tiny", "{model}"), *(["/api/generate"] if dialect == "ollama" else [])]
        asked = [paths[route]["post"]["requestBody"]["content"]["application/json"]["schema"] for route in routes]
        fields = {name: field for schema in asked for name, field in schema["properties"].items()}
        found = {f"{outer}.{inner}" for outer in fields for inner in fields[outer].get("properties", {})}
        declared = {each.names[dialect] for each in parameters_in(dialect).values()}
        others = set(fields) - {name.partition(".")[0] for name in declared}
        assert {name for name in declared if "." in name} <= found, dialect
        assert others == (GENERATE if dialect == "generate" else set()), dialect
        for parameter in parameters_in(dialect).values():
            outer, _, inner = parameter.names[dialect].rpartition(".")
            schema = fields[outer]["properties"][inner] if outer else fields[inner]
            assert inner == "stream" or schema["description"] == parameter.about, parameter.name
