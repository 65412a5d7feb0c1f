"""/v1/messages: blocks and messages, whole answers and events, errors in Anthropic's form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rows import rows

from ox.serve import Server
from ox.serve.protocol.anthropic.blocks import messages_of

PATH = "/v1/messages"
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}
TEXT = {"type": "text", "text": "Hello there, friend."}
USE = {"type": "tool_use", "name": "f", "input": {"x": "y"}}


def asking(*contents: Any, **more: Any) -> dict[str, Any]:
    return {
        "model": "tiny",
        "max_tokens": 50,
        "messages": [{"role": "user", "content": each} for each in contents],
        **more,
    }


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events, each with the name that its data has."""
    events = []
    for text in stream.decode().removesuffix("\n\n").split("\n\n"):
        name, data = text.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def replayed(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events make."""
    (message,), inputs = [event["message"] for event in events if event["type"] == "message_start"], dict[int, str]()
    ended = -1
    for event in events:
        kind = event["type"]
        if kind == "content_block_start":
            assert event["index"] == len(message["content"]) == ended + 1
            message["content"].append(event["content_block"])
        elif kind == "content_block_delta":
            delta, block = event["delta"], message["content"][event["index"]]
            if delta["type"] in ("text_delta", "thinking_delta"):
                kind = delta["type"].removesuffix("_delta")
                block[kind] += delta[kind]
            else:
                assert delta["type"] == "input_json_delta"
                inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
        elif kind == "content_block_stop":
            ended = event["index"]
            if ended in inputs:
                message["content"][ended]["input"] = json.loads(inputs[ended])
        elif kind == "message_delta":
            message |= event["delta"] | {"usage": event["usage"]}
        else:
            assert kind in ("message_start", "ping", "message_stop")
    assert ended == len(message["content"]) - 1
    return message


@rows(
    ("body", "content", "reason"),
    [
        (asking("hi"), [TEXT], "end_turn"),
        (asking([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]), [TEXT], "end_turn"),
        (asking("hi", max_tokens=2), [{"type": "text", "text": "Hello there"}], "max_tokens"),
        (asking("one ends", stop_sequences=["no", "STOP"]), [{"type": "text", "text": "one "}], "stop_sequence"),
        (asking("a call", tools=[TOOL]), [{"type": "text", "text": "See here."}, USE], "tool_use"),
        (asking("a twice", tools=[TOOL], tool_choice={"type": "auto"}), [USE, USE], "tool_use"),
    ],
)
def test_whole_and_in_events(ask: Any, body: dict[str, Any], content: list[Any], reason: str) -> None:
    code, whole = ask("POST", PATH, body)
    _, stream = ask("POST", PATH, {**body, "stream": True})
    events = events_of(stream)
    assert [event["type"] for event in events[:2]] == ["message_start", "ping"]
    assert events[-1] == {"type": "message_stop"} and events[0]["message"]["stop_reason"] is None
    prompt, streamed = events[0]["message"]["usage"]["input_tokens"], replayed(events)
    for message in (whole, streamed):
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        assert len({block.pop("id") for block in calls}) == len(calls)
        assert message["content"] == content and message["stop_reason"] == reason
        assert message["stop_sequence"] == ("STOP" if reason == "stop_sequence" else None)
        usage = message["usage"]
        total = usage["input_tokens"] + usage["cache_read_input_tokens"]
        assert total == prompt and usage["output_tokens"] > 1
    same = {"type", "role", "model"}
    assert code == 200 and {name: whole[name] for name in same} == {name: streamed[name] for name in same}


def test_reasoning(ask: Any) -> None:
    counts = []
    for kind in ("enabled", "disabled"):
        thinking = {"type": kind, "budget_tokens": 1024}
        body = asking("a thought", model="thinking", thinking=thinking)
        _, whole = ask("POST", PATH, body)
        streamed = replayed(events_of(ask("POST", PATH, {**body, "stream": True})[1]))
        thought = {"type": "thinking", "thinking": "hm hm", "signature": ""}
        assert whole["content"] == streamed["content"] == [thought, {"type": "text", "text": "done"}]
        counts.append(sum(whole["usage"][name] for name in ("input_tokens", "cache_read_input_tokens")))
    assert counts[0] > counts[1]  # the template was told


def test_the_answer_continues_the_last_message(ask: Any) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hel"}]
    _, counted = ask("POST", f"{PATH}/count_tokens", {"model": "tiny", "messages": messages})
    chat = {"model": "tiny", "messages": messages, "continue_final_message": True, "add_generation_prompt": False}
    _, same = ask("POST", "/v1/chat/completions", chat)
    assert counted["input_tokens"] == same["usage"]["prompt_tokens"]


def test_whole_numbers_of_any_size(scripted: Server, connect: Any) -> None:
    with connect(scripted) as client:
        reply = client.ask("POST", PATH, json.dumps(asking("a large", tools=[TOOL])).encode())[2]
    assert b'{"x": 123456789012345678901234567890}' in reply


def test_deep_arguments(ask: Any) -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    messages = [
        {"role": "assistant", "content": [{**USE, "id": "c", "input": deep}]},
        {"role": "user", "content": "hi"},
    ]
    body = json.dumps({**asking(), "messages": messages}).encode()
    assert ask("POST", PATH, body)[0] == 200


def test_choices_of_tools(ask: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    for choice in ({"type": "any"}, {"type": "tool", "name": "f"}, {"type": "any", "disable_parallel_tool_use": True}):
        _, whole = ask("POST", PATH, asking("a call", tools=[TOOL], tool_choice=choice))
        assert [block["type"] for block in whole["content"]] == ["tool_use"] and whole["stop_reason"] == "tool_use"
    _, whole = ask("POST", PATH, asking("a call", tools=[TOOL], tool_choice={"type": "none"}))
    assert [block["type"] for block in whole["content"]] == ["text"]


def test_a_schema_of_the_answer(ask: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    form = {"type": "json_schema", "schema": {"type": "object", "properties": {}, "additionalProperties": False}}
    for more in ({"output_config": {"format": form}}, {"output_format": form}):
        code, whole = ask("POST", PATH, asking("hi", **more))
        assert code == 200 and json.loads(whole["content"][0]["text"]) == {}


CALLED = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"x": "y"}}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "42"}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
PARTS = {"type": "content", "content": [{"type": "text", "text": "wor"}, {"type": "text", "text": "ds"}]}
SEARCHED = {"type": "search_result", "title": "T", "source": "here", "content": [{"type": "text", "text": "fact"}]}


@rows(
    ("system", "given", "messages"),
    [
        ("be", [("user", "hi")], [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]),
        ([{"type": "text", "text": "b"}, {"type": "text", "text": "e"}], [("user", [])],
         [{"role": "system", "content": "b\ne"}, {"role": "user", "content": ""}]),
        (None, [("assistant", [{"type": "thinking", "thinking": "hm", "signature": ""},
                               {"type": "redacted_thinking", "data": "x"},
                               {"type": "text", "text": "a"}, {**USE, "id": "c"}])],
         [{"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": [CALLED]}]),
        (None, [("assistant", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
         [{"role": "assistant", "content": "ab"}]),
        (None, [("assistant", [{**USE, "id": "c"}]), ("user", [RESULT, {"type": "text", "text": "and"}])],
         [{"role": "assistant", "content": None, "tool_calls": [CALLED]},
          {"role": "tool", "tool_call_id": "c", "content": "42"}, {"role": "user", "content": "and"}]),
        (None, [("user", [{"type": "tool_result", "tool_use_id": "c", "is_error": True},
                          {**RESULT, "content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]}])],
         [{"role": "tool", "tool_call_id": "c", "content": ""},
          {"role": "tool", "tool_call_id": "c", "content": "4\n2"}]),
        (None, [("user", "a"), ("system", [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}])],
         [{"role": "user", "content": "a"}, {"role": "system", "content": "b\nc"}]),
        (None, [("user", [{**DOCUMENT, "title": "T", "context": "C", "citations": {"enabled": True}}, DOCUMENT,
                          {"type": "text", "text": "a"}])],
         [{"role": "user", "content": "T\nC\nwords\n\nwords\n\na"}]),
        (None, [("user", [{**RESULT, "content": [SEARCHED, {**DOCUMENT, "source": PARTS}]}])],
         [{"role": "tool", "tool_call_id": "c", "content": "T\nhere\nfact\n\nwor\nds\n"}]),
    ],
)  # fmt: skip
def test_blocks_as_messages(system: Any, given: list[Any], messages: list[Any]) -> None:
    assert messages_of([{"role": role, "content": content} for role, content in given], system) == messages


def test_counting_tokens(ask: Any) -> None:
    body = asking("a call", tools=[TOOL], system="be")
    _, whole = ask("POST", PATH, body)
    del body["max_tokens"]
    assert ask("POST", f"{PATH}/count_tokens", body) == (
        200, {"input_tokens": whole["usage"]["input_tokens"] + whole["usage"]["cache_read_input_tokens"]}
    )  # fmt: skip
    _, long = ask("POST", f"{PATH}/count_tokens", {"model": "tiny", "messages": asking("word " * 9000)["messages"]})
    assert long["input_tokens"] > 8192  # the context
    status, reply = ask("POST", f"{PATH}/count_tokens", {"model": "tiny"})
    assert status == 400 and "'messages'" in reply["error"]["message"]


IMAGE = {"type": "image", "source": {}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
WRONG = [
    ({"model": "tiny", "messages": []}, "Missing required parameter: 'max_tokens'"),
    ({"model": "tiny", "max_tokens": 5}, "Missing required parameter: 'messages'"),
    (asking(), "'messages' is wrong; expected a list of 1 to"),
    (asking("hi", messages=["hi"]), "'messages[0]' is wrong"),
    (asking("hi", messages=[{"role": "king", "content": "be"}]), "expected user, assistant, system"),
    (asking("hi", messages=[{"role": "system", "content": [RESULT]}]), "blocks of type 'tool_result' are not"),
    (asking([PDF]), "'messages[0].content[0].source': documents of type 'base64' are not supported; expected text,"),
    (asking([{"type": "document"}]), "documents of type null are not supported"),
    (asking([{"type": "search_result", "title": "t", "source": "s"}]), "content[0].content' is wrong"),
    (asking("hi", messages=[{"role": ["user"], "content": "hi"}]), "'messages[0].role' is wrong"),
    (asking(5), "'messages[0].content' is wrong"),
    (asking(["hi"]), "'messages[0].content[0]' is wrong"),
    (asking([IMAGE]), "'messages[0].content[0]': blocks of type 'image' are not supported"),
    (asking([{**RESULT, "content": [IMAGE]}]), "'messages[0].content[0].content[0]': blocks of type 'image'"),
    (asking([{"type": "tool_result"}]), "'messages[0].content[0].tool_use_id' is wrong"),
    (asking("hi", messages=[{"role": "assistant", "content": [{**USE, "id": "c", "input": "x"}]}]), "input' is wrong"),
    (asking("hi", system=[IMAGE]), "'system[0]': blocks of type 'image'"),
    (asking("hi", tools=[{"type": "web_search_20250305", "name": "w"}]), "'web_search_20250305' are not supported"),
    (asking("hi", tools=[{"name": "f"}]), "'tools[0]' is wrong"),
    (asking("hi", tools=[TOOL], tool_choice={"type": "tool", "name": "g"}), "'tool_choice' is wrong"),
    (asking("hi", tools=[TOOL], tool_choice={"type": "all"}), "'tool_choice' is wrong"),
    (asking("hi", thinking={"type": "much"}), "'thinking' is wrong"),
    (asking("hi", output_config={"format": {"type": "xml"}}), "'output_config.format' is wrong"),
    (asking("hi", mcp_servers=[{}]), "'mcp_servers' is not supported"),
    (asking("hi", context_management=5), "'context_management' is wrong"),
    (asking("hi", max_tokens=0), "'max_tokens' is wrong"),
    (asking("hi", max_tokens=1 << 20), "longer than the model's context"),
    (asking("hi", temperature=3), "'temperature' is wrong"),
    (asking("hi", stop_sequences=5), "'stop_sequences' is wrong"),
    (asking("hi", n=2), "'n' is not supported: a request has one text here"),
]  # fmt: skip


@rows(("body", "words"), WRONG)
def test_wrong_requests(ask: Any, body: Any, words: str) -> None:
    for stream in (False, True):
        status, reply = ask("POST", PATH, {**body, "stream": stream})
        assert status == 400 and set(reply) == {"type", "error"} and reply["type"] == "error"
        assert set(reply["error"]) == {"type", "message"} and reply["error"]["type"] == "invalid_request_error"
        assert words in reply["error"]["message"], reply


@rows(
    ("method", "target", "body", "status", "kind"),
    [
        ("POST", PATH, asking("hi", model="no"), 404, "not_found_error"),
        ("POST", PATH, b"{", 400, "invalid_request_error"),
        ("POST", PATH, b'"' + b"a" * 300_000 + b'"', 413, "request_too_large"),
        ("GET", PATH, None, 405, "invalid_request_error"),
        ("POST", f"{PATH}/batches", {}, 404, "not_found_error"),
        ("POST", f"{PATH}?beta=true", {}, 400, "invalid_request_error"),
    ],
)
def test_errors_of_the_transport(ask: Any, method: str, target: str, body: Any, status: int, kind: str) -> None:
    code, reply = ask(method, target, body)
    assert code == status and reply["type"] == "error" and reply["error"]["type"] == kind


def test_parameters_without_effect(scripted: Server, connect: Any) -> None:
    body = asking("hi", context_management={"edits": []}, service_tier="flex")
    with connect(scripted) as client:
        status, headers, _ = client.ask("POST", PATH, json.dumps(body).encode())
    assert status == 200
    assert headers["ox-warning"] == "unused=context_management, service_tier"


def test_keys(ask: Any, guarded: Server) -> None:
    for target in (PATH, f"{PATH}/count_tokens"):
        for key, status, kind in (("a", 200, None), ("b", 403, "permission_error"), ("c", 401, "authentication_error")):
            code, reply = ask("POST", target, asking("hi"), server=guarded, x_api_key=key)
            assert code == status and (kind is None or reply["error"]["type"] == kind), (key, reply)


def test_with_the_package_of_anthropic(scripted: Server) -> None:
    anthropic = pytest.importorskip("anthropic", reason="the package anthropic is not installed")
    with anthropic.Anthropic(base_url=scripted.url, api_key="any", max_retries=0, timeout=300) as client:
        asked: dict[str, Any] = {"model": "tiny", "max_tokens": 50, "messages": [{"role": "user", "content": "a call"}]}
        whole = client.messages.create(**asked, tools=[TOOL])
        with client.messages.stream(**asked, tools=[TOOL]) as stream:
            text, final = "".join(stream.text_stream), stream.get_final_message()
        assert text == "See here." and final.content[1].input == whole.content[1].input == {"x": "y"}
        result = {"type": "tool_result", "tool_use_id": final.content[1].id, "content": "42"}
        history = [*asked["messages"], {"role": "assistant", "content": [each.to_dict() for each in final.content]},
                   {"role": "user", "content": [result]}]  # fmt: skip
        assert client.messages.create(model="tiny", max_tokens=50, messages=history).content[0].text == TEXT["text"]
        with pytest.raises(anthropic.NotFoundError, match="no model"):
            client.messages.create(**{**asked, "model": "no"})
