"""Calls that a server has handed out are taken as history, and so are those of other servers."""

from __future__ import annotations

import json
from typing import Any

from rows import rows

NAME, SCHEMA, HALF = "f", {"type": "object"}, '{"x": "\\ud83d"}'  # half of a surrogate pair
FUNCTION = {"name": NAME, "parameters": SCHEMA}
CHAT: dict[str, Any] = {"tools": [{"type": "function", "function": FUNCTION}]}
USER = {"role": "user", "content": "half"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"tools": [{"type": "function", **FUNCTION}]},
    "/v1/messages": {"max_tokens": 100, "tools": [{"name": NAME, "input_schema": SCHEMA}]},
    "/api/chat": {**CHAT, "stream": False},
}


def assistant(call: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def messages_of(path: str, document: dict[str, Any]) -> list[Any]:
    """An answer, as its client sends it back."""
    if path == "/v1/chat/completions":
        return [document["choices"][0]["message"]]
    if path == "/v1/responses":
        return list(document["output"])
    if path == "/v1/messages":
        return [{"role": "assistant", "content": document["content"]}]
    return [document["message"]]


@rows("path", list(BODIES))
def test_own_calls(ask: Any, path: str) -> None:
    name = "input" if path == "/v1/responses" else "messages"
    body = {"model": "tiny", **BODIES[path]}
    status, document = ask("POST", path, {**body, name: [USER]})
    messages = messages_of(path, document)
    assert status == 200 and "�" in str(json.loads(json.dumps(messages).replace("\\\\u", "\\u")))
    status, document = ask("POST", path, {**body, name: [USER, *messages, USER]})
    assert (status, len(messages_of(path, document))) == (200, 1)


CALL = {"id": "c", "type": "function", "function": {"name": NAME, "arguments": HALF}}
OLLAMA = {"function": {"name": NAME, "arguments": HALF}}


@rows(("path", "name", "call"), [
    ("/v1/chat/completions", "messages", assistant(CALL)), ("/api/chat", "messages", assistant(OLLAMA)),
    ("/tokenize", "messages", assistant(CALL)),
    ("/v1/responses", "input", {"type": "function_call", "call_id": "c", "name": NAME, "arguments": HALF}),
])  # fmt: skip
def test_calls_of_other_servers(ask: Any, path: str, name: str, call: dict[str, Any]) -> None:
    status, document = ask("POST", path, {"model": "tiny", name: [USER, call, USER], **BODIES.get(path, {})})
    assert status == 200, document
