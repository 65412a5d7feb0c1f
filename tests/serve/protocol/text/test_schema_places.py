"""Schemas that are refused: errors name their place in the words of the dialect, and the function."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

from ox.serve.generation.json_schema import DEEPEST

pytest.importorskip("llguidance", reason="the extra text is not installed")

CHAT, RESPONSES, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"
BAD = {"type": "object", "properties": {"a": {"type": "array", "minItems": 3, "maxItems": 2}}, "required": ["a"]}
ELSEWHERE = {"type": "object", "properties": {"a": {"$ref": "http://a/b"}}, "required": ["a"]}
LACKS = {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 1e9}}, "required": ["a"]}
DEEP: dict[str, Any] = {"type": "object"}
for _ in range(DEEPEST // 2 + 1):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
GOOD = {"type": "object", "properties": {}}


def body_of(path: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    limit = {"max_tokens": 5} if path == MESSAGES else {}
    return {"model": "tiny", "input" if path == RESPONSES else "messages": messages, **limit, **more}


def with_format(path: str, schema: Any) -> dict[str, Any]:
    form = {"name": "a", "schema": schema, "strict": True}
    return body_of(path, **{
        CHAT: {"response_format": {"type": "json_schema", "json_schema": form}},
        RESPONSES: {"text": {"format": {"type": "json_schema", **form}}},
        MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        OLLAMA: {"format": schema},
    }[path])  # fmt: skip


def with_tool(path: str, schema: Any, name: str = "g") -> dict[str, Any]:
    """The schema is that of the second tool."""
    functions = [{"name": "f", "parameters": GOOD}, {"name": name, "parameters": schema}]
    functions = [{**each, "strict": True} for each in functions]
    return body_of(path, **{
        CHAT: {"tools": [{"type": "function", "function": each} for each in functions]},
        OLLAMA: {"tools": [{"type": "function", "function": each} for each in functions]},
        RESPONSES: {"tools": [{"type": "function", **each} for each in functions]},
        MESSAGES: {"tools": [
            {"name": each["name"], "input_schema": each["parameters"], "strict": True} for each in functions]},
    }[path])  # fmt: skip


SCHEMA = {
    CHAT: "tools[1].function.parameters", OLLAMA: "tools[1].function.parameters", RESPONSES: "tools[1].parameters",
    MESSAGES: "tools[1].input_schema",
}  # fmt: skip
FORMAT = {CHAT: "response_format", OLLAMA: "format", RESPONSES: "text.format", MESSAGES: "output_config.format"}
CASES = []
for path in SCHEMA:
    CASES += [
        (path, with_format(path, BAD), f"in {FORMAT[path]};"),
        (path, with_format(path, ELSEWHERE), f"in {FORMAT[path]} #/properties/a;"),
        (path, with_format(path, DEEP), f"in {FORMAT[path]};"),
        (path, with_tool(path, BAD), f"in function 'g', {SCHEMA[path]};"),
        (path, with_tool(path, ELSEWHERE), f"in function 'g', {SCHEMA[path]} #/properties/a;"),
        (path, with_tool(path, LACKS), f"in function 'g', {SCHEMA[path]} #/properties/a;"),
        (path, with_tool(path, DEEP), f"in {SCHEMA[path]};"),
        (path, with_tool(path, GOOD, "f"), f"'{SCHEMA[path].rpartition('.')[0]}.name' has the same name"),
    ]


@rows(("path", "body", "words"), CASES)
def test_the_place_of_a_schema(ask: Any, path: str, body: dict[str, Any], words: str) -> None:
    status, answer = ask("POST", path, body)
    error = answer["error"]
    message = error if isinstance(error, str) else error["message"]
    assert status == 400 and words in message, message
    if path in (CHAT, RESPONSES) and "same name" in words:
        assert f"'{error['param']}' has" in words
