"""/v1/responses: items and messages, whole answers and events, and conversations that go on."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from rows import rows

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.access import keyfile
from ox.serve.access.key import Key, digest_of
from ox.serve.generation.request import TokenEvent
from ox.serve.protocol.responses import handlers
from ox.serve.protocol.responses.answer import response_answer
from ox.serve.protocol.responses.input_items import messages_of, read_items
from ox.serve.protocol.responses.request import ResponseCall, read_response
from ox.serve.protocol.text.fields import Fields
from ox.serve.protocol.text.response_store import MEMORY, ResponseStore

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
HELLO = "Hello there, friend."


def asking(content: Any, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "input": content, **more}


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events, each with the name that its data has, numbered from 0 on."""
    events = []
    for number, text in enumerate(stream.decode().removesuffix("\n\n").split("\n\n")):
        name, data = text.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}" and event.pop("sequence_number") == number
        events.append(event)
    return events


def replayed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output items that the deltas make, checked against what the events of the ends say."""
    items: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items) and event["item"]["status"] == "in_progress"
            items.append(event["item"])
        elif kind == "content_part.added":
            items[-1]["content"].append(event["part"])
        elif kind in ("output_text.delta", "reasoning_text.delta"):
            items[-1]["content"][event["content_index"]]["text"] += event["delta"]
        elif kind == "function_call_arguments.delta":
            items[-1]["arguments"] += event["delta"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert event["text"] == items[-1]["content"][0]["text"]
        elif kind == "content_part.done":
            assert event["part"]["text"] == items[-1]["content"][0]["text"]
        elif kind == "function_call_arguments.done":
            assert event["arguments"] == items[-1]["arguments"]
        elif kind == "output_item.done":
            items[-1]["status"] = event["item"]["status"]
            assert event["item"] == items[-1]
        else:
            assert kind in ("created", "in_progress", "completed", "incomplete")
    return items


def seen(items: list[dict[str, Any]]) -> list[Any]:
    """What is in the items."""
    return [
        (item["name"], json.loads(item["arguments"]))
        if item["type"] == "function_call"
        else "".join(part["text"] for part in item["content"])
        for item in items
    ]


@rows(
    ("body", "status", "output"),
    [
        (asking("hi"), "completed", [HELLO]),
        (asking([{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]), "completed", [HELLO]),
        (asking("hi", max_output_tokens=2), "incomplete", ["Hello there"]),
        (asking("a call", tools=[TOOL]), "completed", ["See here.", ("f", {"x": "y"})]),
        (asking("a twice", tools=[TOOL]), "completed", [("f", {"x": "y"}), ("f", {"x": "y"})]),
        (asking("one ends", stop=["STOP"]), "completed", ["one "]),
    ],
)
def test_whole_and_in_events(ask: Any, body: dict[str, Any], status: str, output: list[Any]) -> None:
    code, whole = ask("POST", PATH, body)
    assert code == 200 and whole["object"] == "response" and whole["status"] == status
    assert seen(whole["output"]) == output
    assert {item["status"] for item in whole["output"][:-1]} <= {"completed"} and whole["output"][-1][
        "status"
    ] == status
    assert whole["incomplete_details"] == ({"reason": "max_output_tokens"} if status == "incomplete" else None)
    usage = whole["usage"]
    assert usage["output_tokens"] > 1 and usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    code, stream = ask("POST", PATH, {**body, "stream": True})
    events = events_of(stream)
    assert code == 200 and [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0]["response"]["status"] == "in_progress" and events[0]["response"]["output"] == []
    assert events[-1]["type"] == f"response.{status}"
    last = events[-1]["response"]
    assert replayed(events) == last["output"] and seen(last["output"]) == output
    same = set(whole) - {"id", "output", "created_at", "completed_at", "usage"}
    assert {name: last[name] for name in same} == {name: whole[name] for name in same}
    assert last["id"] == events[0]["response"]["id"] != whole["id"]


def test_what_a_response_repeats(ask: Any) -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    notes = {f"{i:064}": "ü" * 512 for i in range(16)}
    body = asking(
        "hi", instructions="be", metadata=notes, temperature=0.5, top_p=0.25, tools=[TOOL], tool_choice="none",
        user="me", store=False,
    )  # fmt: skip
    _, whole = ask("POST", PATH, body)
    assert {name: whole[name] for name in body if name != "input"} == {**body, "model": "tiny", "input": None} | {
        name: body[name] for name in body if name != "input"
    } or {name: whole[name] for name in body if name != "input"} == {
        name: body[name] for name in body if name != "input"
    }
    assert ask("GET", f"{PATH}/{whole['id']}")[0] == 404  # it was not stored
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    code, whole = ask("POST", PATH, asking("hi", text={"format": form}, max_output_tokens=200))
    assert code == 200 and whole["text"]["format"] == form and isinstance(json.loads(seen(whole["output"])[0]), dict)


def test_choices_of_tools(ask: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    named = {"type": "function", "name": "f"}
    other = {**TOOL, "name": "g"}
    for choice in ("required", named, {"type": "allowed_tools", "mode": "required", "tools": [named]}):
        _, whole = ask("POST", PATH, asking("hi", tools=[other, TOOL], tool_choice=choice, parallel_tool_calls=False))
        assert [item["type"] for item in whole["output"]] == ["function_call"] and whole["tool_choice"] == choice
        assert choice == "required" or whole["output"][0]["name"] == "f"
    _, whole = ask("POST", PATH, asking("a call", tools=[TOOL], tool_choice="none"))
    assert [item["type"] for item in whole["output"]] == ["message"]
    _, whole = ask("POST", PATH, asking("a twice", tools=[TOOL], parallel_tool_calls=False))
    assert seen(whole["output"]) == [("f", {"x": "y"})]


def test_reasoning(ask: Any) -> None:
    body = asking("a thought", model="thinking", reasoning={"effort": "high", "summary": "auto"})
    _, whole = ask("POST", PATH, body)
    events = events_of(ask("POST", PATH, {**body, "stream": True})[1])
    for output in (whole["output"], replayed(events)):
        assert [item["type"] for item in output] == ["reasoning", "message"] and seen(output) == ["hm hm", "done"]
    details = whole["usage"]["output_tokens_details"]
    assert 0 < details["reasoning_tokens"] < whole["usage"]["output_tokens"]
    assert events[-1]["response"]["usage"]["output_tokens_details"] == details
    assert whole["reasoning"] == {"effort": "high", "summary": None}
    status, _ = ask("POST", PATH, asking("and", model="thinking", previous_response_id=whole["id"]))
    assert status == 200


def test_log_probabilities(ask: Any) -> None:
    body = asking("hi", include=["message.output_text.logprobs"], top_logprobs=2)
    _, whole = ask("POST", PATH, body)
    entries = whole["output"][0]["content"][0]["logprobs"]
    assert "".join(each["token"] for each in entries) == HELLO and {len(each["top_logprobs"]) for each in entries} == {
        2
    }
    events = events_of(ask("POST", PATH, {**body, "stream": True})[1])
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [entry for delta in deltas for entry in delta["logprobs"]] == entries


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "42"}
CHAT_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
THOUGHT = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}


@rows(
    ("items", "messages"),
    [
        ("hi", [{"role": "user", "content": "hi"}]),
        ([{"role": role, "content": [{"type": kind, "text": "a"}, {"type": kind, "text": "b"}]}
          for role, kind in (("user", "input_text"), ("assistant", "output_text"))],
         [{"role": "user", "content": "a\nb"}, {"role": "assistant", "content": "ab"}]),
        ([{"role": "developer", "content": "be"}, {"role": "user", "content": []}],
         [{"role": "developer", "content": "be"}, {"role": "user", "content": ""}]),
        ([CALL, RESULT], [{"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
                          {"role": "tool", "tool_call_id": "c", "content": "42"}]),
        ([SAID, CALL, CALL], [{"role": "assistant", "content": "a", "tool_calls": [CHAT_CALL, CHAT_CALL]}]),
        ([SAID, THOUGHT, CALL], [{"role": "assistant", "content": "a"},
                                 {"role": "assistant", "content": None, "reasoning_content": "hm",
                                  "tool_calls": [CHAT_CALL]}]),
        ([THOUGHT, SAID], [{"role": "assistant", "content": "a", "reasoning_content": "hm"}]),
        ([THOUGHT], [{"role": "assistant", "content": "", "reasoning_content": "hm"}]),
        ([{**RESULT, "output": [{"type": "input_text", "text": "4"}, {"type": "input_text", "text": "2"}]}],
         [{"role": "tool", "tool_call_id": "c", "content": "4\n2"}]),
        ([{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
         [{"role": "assistant", "content": "no"}]),
    ],
)  # fmt: skip
def test_items_as_messages(items: Any, messages: list[Any]) -> None:
    assert messages_of(read_items(items, "k")) == messages


def test_a_conversation_goes_on(ask: Any) -> None:
    """A response that continues another one has the same prompt as one of the whole conversation."""
    _, first = ask("POST", PATH, asking("a call", tools=[TOOL], instructions="be"))
    call = first["output"][1]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "42"}
    _, second = ask("POST", PATH, asking([result], previous_response_id=first["id"], tools=[TOOL], stream=True))
    second = events_of(second)[-1]["response"]
    history: list[Any] = [{"role": "user", "content": "a call"}, *first["output"], result]
    _, alone = ask("POST", PATH, asking(history, tools=[TOOL]))
    assert second["previous_response_id"] == first["id"]
    assert second["usage"]["input_tokens"] == alone["usage"]["input_tokens"]
    _, third = ask("POST", PATH, asking("hi", previous_response_id=second["id"]))
    _, alone = ask("POST", PATH, asking([*history, *second["output"], {"role": "user", "content": "hi"}]))
    assert third["usage"]["input_tokens"] == alone["usage"]["input_tokens"]
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    _, named = ask("POST", PATH, asking([*history[:1], *references, result], tools=[TOOL]))
    assert named["usage"]["input_tokens"] == second["usage"]["input_tokens"]
    assert ask("DELETE", f"{PATH}/{first['id']}")[0] == 200
    assert ask("POST", PATH, asking("hi", previous_response_id=second["id"]))[0] == 200  # it has all that it needs


def test_parameters_without_effect(scripted: Server, connect: Any) -> None:
    """They are named in the header where OpenAI's service could answer otherwise."""
    rows = [
        ({"truncation": "auto"}, "unused=truncation"),
        ({"context_management": [{"type": "compaction"}], "include": ["file_search_call.results"]},
         "unused=context_management, include"),
        ({"include": ["reasoning.encrypted_content"], "context_management": [], "service_tier": "auto"}, None),
    ]  # fmt: skip
    with connect(scripted) as client:
        for more, warning in rows:
            status, headers, reply = client.ask("POST", PATH, json.dumps(asking("hi", **more)).encode())
            assert status == 200 and headers.get("ox-warning") == warning
            assert json.loads(reply)["truncation"] == more.get("truncation", "disabled")


def test_counting_tokens(ask: Any) -> None:
    """They are those of the prompt that a response has, also of one that continues another one."""
    body = asking("a call", tools=[TOOL], instructions="be", reasoning={"effort": "low"}, truncation="disabled")
    _, first = ask("POST", PATH, body)
    following = asking("hi", previous_response_id=first["id"])
    for each in (body, following):
        _, whole = ask("POST", PATH, each)
        counted = {"object": "response.input_tokens", "input_tokens": whole["usage"]["input_tokens"]}
        assert ask("POST", f"{PATH}/input_tokens", each) == (200, counted)
    _, reply = ask("POST", f"{PATH}/input_tokens", asking("word " * 9000, max_output_tokens=9000))
    assert reply["input_tokens"] > 8192  # the context
    for wrong, param in (({"model": "tiny"}, "input"), (asking("hi", truncation="most"), "truncation")):
        status, reply = ask("POST", f"{PATH}/input_tokens", wrong)
        assert status == 400 and reply["error"]["param"] == param


def test_what_may_be_large_is_read_in_a_thread(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of a hundred bytes may continue one of megabytes, or be compressed."""
    threads = []

    def read(*given: Any) -> ResponseCall:
        threads.append(threading.get_ident())
        return read_response(*given)

    monkeypatch.setattr(handlers, "read_response", read)
    _, first = ask("POST", PATH, asking("hi"))
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    for body in (asking("on", previous_response_id=first["id"]), asking([reference, {"role": "user", "content": "a"}])):
        assert ask("POST", PATH, body)[0] == 200
    packed = gzip.compress(json.dumps(asking("hi")).encode())  # may be a thousand times larger
    assert ask("POST", PATH, packed, content_encoding="gzip")[0] == 200
    loop, *others = threads
    assert loop not in others and len(others) == 3


def test_the_store_is_used_in_threads(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large response takes long, and so does a file that another process holds."""
    calls = []

    def watch(name: str) -> None:
        call = getattr(ResponseStore, name)

        def watched(*given: Any) -> Any:
            calls.append((name, asyncio._get_running_loop()))
            return call(*given)

        monkeypatch.setattr(ResponseStore, name, watched)

    for name in ("get", "put", "delete"):
        watch(name)
    for stream in (True, False):
        ask("POST", PATH, asking("hi", stream=stream))
    _, whole = ask("POST", PATH, asking("hi"))
    for method, end in (("GET", "/input_items"), ("POST", "/cancel"), ("GET", ""), ("DELETE", "")):
        ask(method, f"{PATH}/{whole['id']}{end}")
    assert calls == [(name, None) for name in ("put", "put", "put", "get", "get", "get", "delete")]


def test_stored_responses(ask: Any) -> None:
    items = [{"role": "user", "content": "hi"}, {**SAID, "id": "mine"}, {"role": "user", "content": "and"}]
    _, whole = ask("POST", PATH, asking(items))
    target = f"{PATH}/{whole['id']}"
    assert ask("GET", target) == (200, whole)
    _, listed = ask("GET", f"{target}/input_items?order=asc&limit=2")
    assert [item["role"] for item in listed["data"]] == ["user", "assistant"] and listed["has_more"]
    assert listed["last_id"] == "mine" and listed["first_id"] == listed["data"][0]["id"]
    _, rest = ask("GET", f"{target}/input_items?order=asc&after=mine")
    assert [item["content"][0]["text"] for item in rest["data"]] == ["and"] and not rest["has_more"]
    _, newest = ask("GET", f"{target}/input_items")
    assert [item["id"] for item in newest["data"]] == [item["id"] for item in [*rest["data"], *listed["data"][::-1]]]
    for query, param in (("order=up", "order"), ("limit=0", "limit"), ("limit=x", "limit"), ("after=no", "after")):
        status, reply = ask("GET", f"{target}/input_items?{query}")
        assert status == 400 and reply["error"]["param"] == param
    status, reply = ask("POST", f"{target}/cancel")
    assert status == 400 and "background" in reply["error"]["message"]
    assert ask("GET", f"{target}?stream=true")[0] == 400
    assert ask("DELETE", target) == (200, {"id": whole["id"], "object": "response", "deleted": True})
    for method, end in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        status, reply = ask(method, target + end)
        assert status == 404 and reply["error"]["param"] == "response_id" and "not found" in reply["error"]["message"]


DEEP: Any = {}
for _ in range(300):
    DEEP = {"a": DEEP}
IMAGE = {"type": "input_image", "image_url": "x"}
WRONG = [
    ({"model": "tiny"}, "input", "Missing required parameter: 'input'"),
    (asking([]), "input", "an item or more"),
    (asking(5), "input", "a string, or a list"),
    (asking(["hi"]), "input[0]", "an item"),
    (asking([{"type": "computer_call"}]), "input[0].type", "'computer_call' are not supported"),
    (asking([{"role": "king", "content": "a"}]), "input[0].role", "system, developer, user, assistant"),
    (asking([{"role": "user", "content": [IMAGE]}]), "input[0].content[0]", "got 'input_image'"),
    (asking([{"role": "user"}]), "input[0].content", "a string, or a list"),
    (asking([{**CALL, "name": 5}]), "input[0].name", "a string"),
    (asking([{**RESULT, "output": [IMAGE]}]), "input[0].output[0]", "not a text"),
    (asking([{"type": "reasoning", "summary": "hm"}]), "input[0].summary", "a list"),
    (asking("hi", tools=[{"type": "web_search"}]), "tools[0].type", "'web_search' are not supported"),
    (
        asking("hi", tools=[{"type": "function", "function": {"name": "f"}}]),
        "tools[0].name",
        "the name of the function",
    ),
    (asking("hi", tools=[TOOL], tool_choice={"type": "function", "name": "g"}), "tool_choice", "in 'tools'; got 'g'"),
    (asking("hi", tools=[TOOL], tool_choice={"type": "allowed_tools", "tools": 5}), "tool_choice", "one of the tools"),
    (asking("hi", text={"format": {"type": "xml"}}), "text.format", "json_schema"),
    (
        asking("hi", text={"format": {"type": "json_schema", "name": "n"}}),
        "text.format.schema",
        "the schema is missing",
    ),
    (asking("hi", background=True), "background", "not supported"),
    (asking("hi", truncation="most"), "truncation", "auto or disabled"),
    (asking("hi", context_management={}), "context_management", "a list"),
    (asking("hi", conversation="conv_1"), "conversation", "not supported"),
    (asking("hi", max_output_tokens=0), "max_output_tokens", "a whole number from 1"),
    (asking("hi", max_output_tokens=1 << 20), "max_output_tokens", "longer than the model's context"),
    (asking("hi", temperature=3), "temperature", "a number from 0 to 2"),
    (asking("hi", include="all"), "include", "a list of names"),
    (
        asking("hi", tools=[TOOL], tool_choice={"type": "function", "name": "f", "more": DEEP}),
        "tool_choice",
        "nested too deep",
    ),
    (asking([{**RESULT, "output": [DEEP]}]), "input[0].output[0]", "not a text"),
    *[
        (asking("hi", metadata=metadata), "metadata", "at most 16 strings of up to 512")
        for metadata in ({str(i): "" for i in range(17)}, {"k" * 65: ""}, {"k": "v" * 513}, {"k": 5}, DEEP)
    ],
    (asking("hi", store="no"), "store", "true or false"),
]


@rows(("body", "param", "words"), WRONG)
def test_wrong_requests(ask: Any, body: Any, param: str, words: str) -> None:
    for stream in (False, True):
        status, reply = ask("POST", PATH, {**body, "stream": stream})
        error = reply["error"]
        assert status == 400 and set(error) == {"message", "type", "param", "code"}
        assert (error["type"], error["param"]) == ("invalid_request_error", param) and words in error["message"], error


def test_what_is_not_there(ask: Any) -> None:
    for more, param, code in (({"previous_response_id": "resp_no"}, "previous_response_id", 400),
                              ({"model": "no"}, "model", 404)):  # fmt: skip
        status, reply = ask("POST", PATH, {**asking("hi"), **more})
        assert status == code and reply["error"]["param"] == param
    status, reply = ask("POST", PATH, asking([{"type": "item_reference", "id": "msg_no_0"}]))
    assert status == 404 and reply["error"]["param"] == "input[0].id"


def test_an_error_before_the_first_token_of_a_stream_that_has_begun(scripted: Server) -> None:
    """Clients need the event of the beginning first; a comment may have begun the stream."""
    (model,) = [each.text for each in scripted.models if each.name == "tiny"]
    assert model is not None
    call = read_response(Fields({"input": "hi", "stream": True}), model, ResponseStore(MEMORY, 0, 1, SYSTEM), "")
    answer: Any = response_answer(call, cast(Any, None), cast(Any, None))
    created, progress, failed, error = events_of(answer.error_event(ServeError("too late", status=504)))
    assert [each["type"] for each in (created, progress)] == ["response.created", "response.in_progress"]
    assert failed["type"] == "response.failed" and failed["response"]["id"] == created["response"]["id"]
    assert failed["response"]["error"] == {"code": "server_error", "message": "too late"} and error["type"] == "error"
    answer = response_answer(call, cast(Any, None), cast(Any, None))
    begun = answer._begin()
    answer._progress.add(TokenEvent(1, "so"))
    *_, failed, error = events_of(begun + answer.error_event(ServeError("too late", status=504)))
    assert [each["status"] for each in failed["response"]["output"]] == ["incomplete"]


@pytest.fixture
def guarded(scripted_folder: Path, tmp_path: Path) -> Iterator[Server]:
    keys = [Key(name, digest_of(name.encode())) for name in ("alice", "bob")]
    keyfile.write(tmp_path / "keys.toml", keys)
    limits = RequestLimits(responses=4000)
    with Server(
        [scripted_folder], options=ModelConfig(threads=1), keys=tmp_path / "keys.toml", limits=limits
    ) as server:
        yield server


def test_responses_of_other_clients(ask: Any, guarded: Server) -> None:
    alice, bob = {"server": guarded, "x_api_key": "alice"}, {"server": guarded, "x_api_key": "bob"}
    _, whole = ask("POST", PATH, asking("hi"), **alice)
    target, goes_on = f"{PATH}/{whole['id']}", asking("hi", previous_response_id=whole["id"])
    reference = asking([{"type": "item_reference", "id": whole["output"][0]["id"]}])
    for method, path, body in (
        ("GET", target, None), ("DELETE", target, None), ("POST", f"{target}/cancel", None),
        ("GET", f"{target}/input_items", None), ("POST", PATH, goes_on), ("POST", PATH, reference),
    ):  # fmt: skip
        status, reply = ask(method, path, body, **bob)
        assert status == (400 if body is goes_on else 404) and "not found" in reply["error"]["message"], (method, path)
        assert ask(method, path, body, server=guarded)[0] == 401
    assert ask("POST", PATH, goes_on, **alice)[0] == 200 and ask("GET", target, **alice) == (200, whole)
    _, large = ask("POST", PATH, asking("word " * 1000), **bob)
    assert not large["store"] and ask("GET", f"{PATH}/{large['id']}", **bob)[0] == 404  # larger than the whole store
    _, lost = ask("POST", PATH, asking("on", previous_response_id=large["id"]), **bob)
    assert "one that was stored ('store' in it is true)" in lost["error"]["message"]
    with closing(HTTPConnection(guarded.host, guarded.port, timeout=300)) as connection:
        for content, warning in (("word " * 1000, "unused=store"), ("word", None)):
            connection.request("POST", PATH, json.dumps(asking(content)), {"x-api-key": "bob"})
            answer = connection.getresponse()
            assert answer.getheader("ox-warning") == warning and answer.read()
    first, *_, last = events_of(ask("POST", PATH, asking("word " * 1000, stream=True), **bob)[1])
    assert not first["response"]["store"] and not last["response"]["store"]
    assert ask("GET", target, **alice)[0] == 200


def test_a_new_key_of_an_old_name(ask: Any, scripted_folder: Path, tmp_path: Path) -> None:
    target, statuses = "", []
    for secret in ("first", "second", "first"):
        keyfile.write(tmp_path / "keys.toml", [Key("alice", digest_of(secret.encode()))])
        server = Server([scripted_folder / "tiny"], options=ModelConfig(threads=1), keys=tmp_path / "keys.toml")
        server.responses_path = str(tmp_path / "responses")
        with server:
            target = target or ask("POST", PATH, asking("hi"), server=server, x_api_key=secret)[1]["id"]
            statuses.append(ask("GET", f"{PATH}/{target}", server=server, x_api_key=secret)[0])
    assert statuses == [200, 404, 200]


def test_without_a_place_for_responses(ask: Any, scripted_folder: Path) -> None:
    server = Server([scripted_folder / "tiny"], options=ModelConfig(threads=1))
    server.responses_path = ""
    with server:
        _, whole = ask("POST", PATH, asking("hi"), server=server)
        assert not whole["store"] and seen(whole["output"]) == [HELLO]
        assert ask("GET", f"{PATH}/{whole['id']}", server=server)[0] == 404


def test_with_the_package_of_openai(scripted_openai: Any) -> None:
    create = scripted_openai.responses.create
    answer = create(model="tiny", input="hi")
    assert answer.output_text == HELLO and answer.status == "completed"
    with scripted_openai.responses.stream(model="tiny", input="a call", tools=[TOOL]) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == "See here." and json.loads(final.output[1].arguments) == {"x": "y"}
    stored = scripted_openai.responses.retrieve(answer.id)
    assert stored.output_text == HELLO and orjson.loads(stored.model_dump_json())["id"] == answer.id
    assert len(scripted_openai.responses.input_items.list(answer.id).data) == 1
