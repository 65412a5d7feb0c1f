"""Unknown parameters: ignored, named in a header and counted; refused by a strict server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rows import rows

from ox.serve import ModelConfig, Server
from ox.serve.protocol.text.remarks import Remarks

HI = [{"role": "user", "content": "Hi"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "tiny", "prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"model": "tiny", "messages": HI, "max_tokens": 1},
    "/v1/responses": {"model": "tiny", "input": "Hi"},
    "/v1/messages": {"model": "tiny", "messages": HI, "max_tokens": 1},
    "/v2/models/tiny/generate": {"text_input": "a"},
    "/v2/models/tiny/generate_stream": {"text_input": "a"},
    "/tokenize": {"model": "tiny", "prompt": "a"},
}
COUNTED = {path: body for path, body in ROUTES.items() if path != "/tokenize"}  # it runs no model


@pytest.fixture(scope="module")
def strict(scripted_folder: Path) -> Iterator[Server]:
    with Server([scripted_folder], options=ModelConfig(threads=1), strict=True) as running:
        yield running


def post(connect: Any, server: Server, path: str, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    with connect(server) as client:
        found: tuple[int, dict[str, str], bytes] = client.ask("POST", path, json.dumps(body).encode())
    return found


@rows("path", list(ROUTES))
def test_they_are_named_in_a_header_and_counted(connect: Any, scripted: Server, path: str) -> None:
    stages = scripted.service.repository.find("tiny").stages
    before = stages.unknown_parameters
    status, headers, _ = post(connect, scripted, path, {**ROUTES[path], "temprature": "secret", "foo": {"bar": 1}})
    like = "" if path == "/tokenize" else " (try temperature)"
    assert status == 200 and headers["ox-warning"] == f"unknown=temprature{like}, foo"
    assert stages.unknown_parameters == before + (path in COUNTED)
    status, headers, _ = post(connect, scripted, path, ROUTES[path])
    assert status == 200 and "ox-warning" not in headers and stages.unknown_parameters == before + (path in COUNTED)


@rows("path", list(ROUTES))
def test_a_strict_server_refuses_them(connect: Any, strict: Server, path: str) -> None:
    status, headers, answer = post(connect, strict, path, {**ROUTES[path], "temprature": 1})
    assert status == 400 and "Unknown parameter: 'temprature'" in answer.decode() and "ox-warning" not in headers
    assert path == "/tokenize" or "try 'temperature'" in answer.decode()
    assert post(connect, strict, path, ROUTES[path])[0] == 200
    assert strict.service.repository.find("tiny").stages.unknown_parameters == 0


def test_a_strict_server_reads_long_requests_in_threads(connect: Any, strict: Server) -> None:
    body = {**ROUTES["/v1/completions"], "user": "u" * 10_000, "foo": 1}
    assert post(connect, strict, "/v1/completions", body)[0] == 400
    assert post(connect, strict, "/v1/completions", {**body, "foo": None})[0] == 200


@rows(
    ("body", "header"),
    [({"stream": True, "stream_options": {"x": 1}}, "unknown=stream_options.x"),
     ({"reasoning_effort": "low", "store": True, "verbosity": "low"}, "unused=store, verbosity, reasoning_effort"),
     ({"store": False, "service_tier": "auto", "user": "me", "metadata": {"a": "b"}}, None),
     ({"input": "a", "temp": 1, "maxtokens": 1}, "unknown=input, temp, maxtokens (try max_tokens)"),
     ({"reasoning_effort": "low", "a": 1}, "unused=reasoning_effort; unknown=a"),
     ({"structured_outputs": {"choice": ["a"], "b": 1}}, "unknown=structured_outputs.b")],
)  # fmt: skip
def test_inside_of_objects_and_without_effect(
    connect: Any, scripted: Server, body: dict[str, Any], header: str | None
) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    path = "/v1/chat/completions"
    status, headers, _ = post(connect, scripted, path, {**ROUTES[path], **body})
    assert status == 200 and headers.get("ox-warning") == header


CHAT, RESPONSES, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"
F: dict[str, Any] = {"name": "f", "description": "d", "strict": False}
CALLED = [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}, {
    "role": "assistant", "content": None, "refusal": None, "annotations": [], "audio": None, "function_call": None,
    "parsed": None, "reasoning_content": "r", "reasoning": "r", "provider_specific_fields": {}, "id": "m",
    "status": "ok", "tool_calls": [{"id": "c", "type": "function", "index": 0, "function": {
        "name": "f", "arguments": "{}", "parsed_arguments": {}}}]},
    {"role": "tool", "tool_call_id": "c", "name": "f", "content": "x"}, *HI]  # fmt: skip
DOCUMENT = {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}
BLOCKS = [{"role": "user", "content": [DOCUMENT, {"type": "search_result", "title": "t", "source": "s", "content": [
    {"type": "text", "text": "x"}]}]}, {
    "id": "m", "type": "message", "role": "assistant", "model": "x", "stop_reason": "tool_use", "stop_sequence": None,
    "usage": {}, "content": [
        {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a", "citations": None},
        {"type": "tool_use", "id": "c", "name": "f", "input": {}, "caller": {"type": "direct"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": False, "content": [
        {"type": "text", "text": "x"}], "cache_control": {"type": "ephemeral"}}]}]  # fmt: skip
ITEMS = [
    {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    {"type": "reasoning", "id": "r", "summary": [], "content": [], "encrypted_content": "e", "status": None},
    {"type": "message", "id": "m", "role": "assistant", "status": "completed", "phase": None, "content": [
        {"type": "output_text", "text": "a", "annotations": [], "logprobs": [], "parsed": None}]},
    {"type": "function_call", "id": "c", "call_id": "c", "name": "f", "arguments": "{}", "parsed_arguments": {},
     "status": "completed"},
    {"type": "function_call_output", "call_id": "c", "output": "x", "status": "completed", "id": "o"}]  # fmt: skip
TOOL = {"type": "function", "function": {**F, "parameters": {"type": "object", "foo": 1}}}
OF_ANTHROPIC = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "e"},
                "type": "custom", "eager_input_streaming": True}  # fmt: skip


def message_with(key: str) -> list[Any]:
    return [{"role": "user", "content": "Hi", key: 1}, {"role": "user", "content": "Hi", key: 2}]


@rows(("path", "body", "name"), [
    (CHAT, {"messages": CALLED, "tools": [TOOL]}, None),
    (OLLAMA, {"messages": [{"role": "user", "content": "a", "images": []}, {"role": "assistant", "content": "",
        "thinking": "t", "tool_calls": [{"function": {"name": "f", "arguments": {}, "index": 0}}]},
        {"role": "tool", "tool_name": "f", "content": "x"}, *HI], "tools": [TOOL], "stream": False}, None),
    (MESSAGES, {"messages": BLOCKS, "tools": [OF_ANTHROPIC], "system": [{"type": "text", "text": "s"}]}, None),
    (RESPONSES, {"input": ITEMS, "tools": [{"type": "function", **F, "parameters": {"type": "object"}}]}, None),
    ("/tokenize", {"messages": CALLED, "tools": [TOOL], "prompt": None}, None),
    (CHAT, {"messages": message_with("contents")}, "messages[0].contents (try content)"),
    (CHAT, {"messages": message_with("script")}, None),  # a name of the chat template
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "extra": 1}]}]},
     "messages[0].content[0].extra"),
    (CHAT, {"messages": [*CALLED[:1], {**CALLED[1], "tool_calls": [{"function": {"name": "f", "argument": 1}}]}]},
     "messages[1].tool_calls[0].function.argument (try arguments)"),
    (CHAT, {"tools": [{"type": "function", "function": {**F, "input_schema": {}}}]}, "tools[0].function.input_schema"),
    (CHAT, {"response_format": {"type": "text", "foo": 1}}, "response_format.foo"),
    (CHAT, {"response_format": {"type": "text", "json_schema": {"schemas": {}}}},
     "response_format.json_schema.schemas (try schema)"),
    (CHAT, {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f", "foo": 1}}},
     "tool_choice.function.foo"),
    ("/v1/completions", {"response_format": {"type": "text", "foo": 1}}, "response_format.foo"),
    (RESPONSES, {"text": {"foo": 1}}, "text.foo"),
    (RESPONSES, {"text": {"format": {"type": "text", "foo": 1}}}, "text.format.foo"),
    (RESPONSES, {"reasoning": {"summary": "auto", "foo": 1}}, "reasoning.foo"),
    (RESPONSES, {"tools": [{"type": "function", **F}], "tool_choice": {"type": "function", "name": "f", "foo": 1}},
     "tool_choice.foo"),
    (MESSAGES, {"tools": [OF_ANTHROPIC], "tool_choice": {"type": "auto", "foo": 1}}, "tool_choice.foo"),
    (MESSAGES, {"thinking": {"type": "disabled", "foo": 1}}, "thinking.foo"),
    (MESSAGES, {"output_config": {"foo": 1}}, "output_config.foo"),
    (OLLAMA, {"messages": message_with("image"), "stream": False}, "messages[0].image (try images)"),
    (MESSAGES, {"messages": message_with("extra")}, "messages[0].extra"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache": 1}]}]},
     "messages[0].content[0].cache"),
    (MESSAGES, {"system": [{"type": "text", "text": "a", "extra": 1}]}, "system[0].extra"),
    (MESSAGES, {"tools": [{**OF_ANTHROPIC, "parameters": {}}]}, "tools[0].parameters"),
    (RESPONSES, {"input": message_with("extra")}, "input[0].extra"),
    (RESPONSES, {"tools": [{"type": "function", **F, "input_schema": {}}]}, "tools[0].input_schema"),
    ("/tokenize", {"messages": message_with("extra"), "prompt": None}, "messages[0].extra"),
])  # fmt: skip
def test_keys_of_objects(
    connect: Any, scripted: Server, strict: Server, path: str, body: dict[str, Any], name: str | None
) -> None:
    """In messages, parts and tools; not those that clients send with earlier answers."""
    body = {**ROUTES.get(path, {"model": "tiny", "messages": HI}), **body}
    status, headers, answer = post(connect, scripted, path, body)
    assert status == 200 and headers.get("ox-warning") == (name and f"unknown={name}"), answer
    status, _, answer = post(connect, strict, path, body)
    assert status == (400 if name else 200), answer
    assert not name or f"Unknown parameter: '{name.partition(' ')[0]}'" in answer.decode()


@rows(("path", "body", "header"), [
    (CHAT, {"model": "tiny", "chat_template_kwargs": {"enable_thinking": False, "a": 1}},
     "chat_template_kwargs.enable_thinking, chat_template_kwargs.a"),
    (CHAT, {"model": "thinking", "chat_template_kwargs": {"enable_thinking": False, "a": 1}}, "chat_template_kwargs.a"),
    *[(path, body | {"model": model}, name if model == "tiny" and warned else None)
      for model in ("tiny", "thinking")
      for path, body, name, warned in (
          (OLLAMA, {"think": True}, "think", True), (OLLAMA, {"think": "high"}, "think", True),
          (OLLAMA, {"think": False}, "think", False),
          (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking", True),
          (MESSAGES, {"thinking": {"type": "disabled"}}, "thinking", False))],
])  # fmt: skip
def test_variables_that_the_template_lacks(
    connect: Any, scripted: Server, path: str, body: dict[str, Any], header: str | None
) -> None:
    """Not where they ask for what the model does anyway."""
    body = {**ROUTES.get(path, {"messages": HI, "stream": False}), **body}
    status, headers, answer = post(connect, scripted, path, body)
    assert status == 200 and headers.get("ox-warning") == (header and f"unused={header}"), answer


TEXT = "/api/generate"
RAW = {"messages": None, "prompt": "a", "stream": False, "raw": True, "options": {"num_predict": 1}}


@rows(("path", "body", "name"), [
    (RESPONSES, {"max_tokens": 2}, "max_tokens (try max_output_tokens)"),
    (RESPONSES, {"messages": []}, "messages (try input)"),
    (RESPONSES, {"response_format": {"type": "json_object"}}, "response_format (try text.format)"),
    (RESPONSES, {"logprobs": True}, "logprobs (try include)"),
    (RESPONSES, {"guided_decoding_backend": "auto"}, "guided_decoding_backend"),
    (MESSAGES, {"stop": "a"}, "stop (try stop_sequences)"),
    (MESSAGES, {"chat_template_kwargs": {}}, "chat_template_kwargs (try thinking)"),
    (MESSAGES, {"parallel_tool_calls": False}, "parallel_tool_calls (try tool_choice.disable_parallel_tool_use)"),
    (MESSAGES, {"reasoning_effort": "low"}, "reasoning_effort (try output_config.effort)"),
    (MESSAGES, {"logprobs": True}, "logprobs"),
    (MESSAGES, {"web_search_options": {}}, "web_search_options"),
    (OLLAMA, {"temperature": 1}, "temperature (try options.temperature)"),
    (OLLAMA, {"structured_outputs": {"regex": "a"}}, "structured_outputs"),
    (OLLAMA, {"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
    (OLLAMA, {"parallel_tool_calls": False}, "parallel_tool_calls"),
    (TEXT, {**RAW, "max_tokens": 1}, "max_tokens (try options.num_predict)"),
    (TEXT, {**RAW, "guided_regex": "a"}, "guided_regex"),
    *[(path, {"n": 1}, None) for path in (RESPONSES, MESSAGES, OLLAMA)],
    (TEXT, {**RAW, "n": 1}, None),
    (RESPONSES, {"max_tool_calls": 1}, None),
])  # fmt: skip
def test_parameters_of_other_dialects(
    connect: Any, scripted: Server, strict: Server, path: str, body: dict[str, Any], name: str | None
) -> None:
    """They are unknown, too, and are not obeyed; except for values that ask for what is done anyway."""
    body = {**ROUTES.get(path, {"model": "tiny", "messages": HI, "stream": False}), **body}
    status, headers, answer = post(connect, scripted, path, body)
    assert status == 200 and headers.get("ox-warning") == (name and f"unknown={name}"), answer
    assert "required" not in str(body) or "tool_calls" not in answer.decode()
    status, _, answer = post(connect, strict, path, body)
    assert status == (400 if name else 200), answer
    assert not name or f"Unknown parameter: '{name.partition(' ')[0]}'" in answer.decode()


def test_a_header_is_short_and_safe(connect: Any, scripted: Server) -> None:
    evil = ["a\r\nset-cookie: b=1", "é\u2028", "c; unused=d", "x" * 5000, *(f"name{index}" for index in range(100))]
    path = "/v1/completions"
    status, headers, _ = post(connect, scripted, path, {**ROUTES[path], **dict.fromkeys(evil, "secret")})
    names = headers["ox-warning"].removeprefix("unknown=").removesuffix(" and 96 more").split(", ")
    assert status == 200 and "set-cookie" not in headers and len(headers["ox-warning"]) < 500
    assert names == ["a??set-cookie??b?1", "??", "c??unused?d", "x" * 60, "name0", "name1", "name2", "name3"]


def test_the_metric_has_no_names_of_clients(connect: Any, scripted_folder: Path) -> None:
    with Server([scripted_folder], options=ModelConfig(threads=1)) as server, connect(server) as client:
        assert b"ox_unknown_parameters" not in client.ask("GET", "/metrics")[2]
        for name in ("foo", "bar"):
            assert post(connect, server, "/v1/completions", {**ROUTES["/v1/completions"], name: 1})[0] == 200
        lines = client.ask("GET", "/metrics")[2].decode().splitlines()
    assert [line for line in lines if line.startswith("ox_unknown_parameters_total")] == [
        'ox_unknown_parameters_total{model="tiny",version="1"} 2.0'
    ]


def test_remarks_keep_little() -> None:
    remarks = Remarks()
    assert remarks.header() == b"" and remarks.first_unknown is None
    for index in range(100_000):
        remarks.add_unknown(f"n{index}", None)
    assert remarks.unknown == 100_000 and remarks.first_unknown == ("n0", None)
    assert remarks.header().endswith(b"n7 and 99992 more\r\n")
