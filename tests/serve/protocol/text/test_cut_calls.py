"""Calls that end inside of their arguments: what each dialect says of them, whole and in streams."""

from __future__ import annotations

import json
from typing import Any

from rows import rows

TEXT, ARGUMENTS = "See", '{"x": '
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
TOOLS = {
    "/v1/chat/completions": CHAT_TOOLS, "/api/chat": CHAT_TOOLS, "/v1/responses": [{"type": "function", **FUNCTION}],
    "/v1/messages": [{"name": "f", "input_schema": {"type": "object"}}],
}  # fmt: skip
CAUSES: dict[str, dict[str, Any]] = {"stop": {"stop": ['"y"']}, "length": {"max_tokens": 6}, "end": {}}
NAMES = {
    "/v1/chat/completions": {}, "/v1/responses": {"max_tokens": "max_output_tokens"},
    "/v1/messages": {"stop": "stop_sequences"},
    "/api/chat": {"stop": "stop", "max_tokens": "num_predict"},
}  # fmt: skip


def body_of(path: str, cause: str, stream: bool) -> dict[str, Any]:
    script = "cut" if cause == "end" else "call"
    said = {NAMES[path].get(name, name): value for name, value in CAUSES[cause].items()}
    said = {"options": said} if path == "/api/chat" else said
    if path == "/v1/messages":
        said = {"max_tokens": 100, **said}
    messages = "input" if path == "/v1/responses" else "messages"
    return {"model": "tiny", messages: [{"role": "user", "content": script}], "tools": TOOLS[path], "stream": stream,
            **said}  # fmt: skip


def events_of(stream: bytes) -> list[Any]:
    found = [line.removeprefix(b"data: ") for line in stream.splitlines() if line.startswith((b"data: ", b"{"))]
    return [json.loads(line) for line in found if line != b"[DONE]"]


def read(path: str, document: Any) -> tuple[Any, ...]:
    """How a whole answer ends, and its calls."""
    if path == "/v1/chat/completions":
        (choice,) = document["choices"]
        message = choice["message"]
        return choice["finish_reason"], message["content"], [each["function"] for each in message["tool_calls"]]
    if path == "/v1/messages":
        return document["stop_reason"], document["stop_sequence"], document["content"][1:]
    if path == "/api/chat":
        return document["done_reason"], document["message"]
    item = document["output"][-1]
    return document["status"], document["incomplete_details"], item["status"], item["arguments"]


def read_stream(path: str, events: list[Any]) -> tuple[Any, ...]:
    """The same of a stream."""
    if path == "/v1/responses":
        return read(path, events[-1]["response"])
    if path == "/v1/chat/completions":
        deltas = [event["choices"][0]["delta"] for event in events]
        functions = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
        call = {"name": functions[0]["name"], "arguments": "".join(each["arguments"] for each in functions)}
        content = "".join(delta.get("content") or "" for delta in deltas)
        return events[-1]["choices"][0]["finish_reason"], content, [call]
    if path == "/v1/messages":
        (end,) = (event["delta"] for event in events if event["type"] == "message_delta")
        begun = [event["content_block"] for event in events if event["type"] == "content_block_start"]
        parts = [event["delta"].get("partial_json", "") for event in events if event["type"] == "content_block_delta"]
        assert "".join(parts) == ARGUMENTS
        return end["stop_reason"], end["stop_sequence"], [{**begun[-1], "input": {}}]
    text = "".join(event["message"]["content"] for event in events)
    assert not any("tool_calls" in event["message"] for event in events)
    return events[-1]["done_reason"], {"role": "assistant", "content": text}


CALLS = [{"name": "f", "arguments": ARGUMENTS}]
BLOCK = [{"type": "tool_use", "name": "f", "input": {}}]
INCOMPLETE, MESSAGE = ("incomplete", ARGUMENTS), {"role": "assistant", "content": f"{TEXT} here."}


@rows(("path", "cause", "expected"), [
    ("/v1/chat/completions", "stop", ("stop", "See here.", CALLS)),
    ("/v1/chat/completions", "length", ("length", "See here.", CALLS)),
    ("/v1/chat/completions", "end", ("stop", "See", CALLS)),
    ("/v1/responses", "stop", ("incomplete", None, *INCOMPLETE)),
    ("/v1/responses", "length", ("incomplete", {"reason": "max_output_tokens"}, *INCOMPLETE)),
    ("/v1/responses", "end", ("incomplete", None, *INCOMPLETE)),
    ("/v1/messages", "stop", ("stop_sequence", '"y"', BLOCK)),
    ("/v1/messages", "length", ("max_tokens", None, BLOCK)),
    ("/v1/messages", "end", ("end_turn", None, BLOCK)),
    ("/api/chat", "stop", ("stop", MESSAGE)),
    ("/api/chat", "length", ("length", MESSAGE)),
    ("/api/chat", "end", ("stop", {"role": "assistant", "content": TEXT})),
])  # fmt: skip
def test_cut_calls(ask: Any, path: str, cause: str, expected: tuple[Any, ...]) -> None:
    status, document = ask("POST", path, body_of(path, cause, stream=False))
    assert status == 200
    whole = read(path, document)
    status, stream = ask("POST", path, body_of(path, cause, stream=True))
    assert status == 200
    for found in (whole, read_stream(path, events_of(stream))):
        if path == "/v1/messages":
            found[2][0].pop("id")
        assert found == expected
