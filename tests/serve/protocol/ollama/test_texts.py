"""Ollama's /api/chat and /api/generate: whole answers and lines, parameters, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rows import rows

from ox.serve import Server
from ox.serve.protocol.ollama.request import WITHOUT_EFFECT, read_chat_request, read_generate_request
from ox.serve.protocol.text.fields import Fields

CHAT, GENERATE = "/api/chat", "/api/generate"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CALL = {"function": {"name": "f", "arguments": {"x": "y"}}}
HELLO = "Hello there, friend."
COUNTS = {"prompt_eval_count", "eval_count"}
TIMES = {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"}


def chat(content: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": content}], **more}


def text(prompt: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": prompt, **more}


def lines_of(stream: bytes) -> list[dict[str, Any]]:
    assert stream.endswith(b"\n")
    return [json.loads(line) for line in stream[:-1].split(b"\n")]


@rows(
    ("body", "content", "calls", "reason"),
    [
        (chat("hi"), HELLO, [], "stop"),
        (chat("hi", model="tiny:latest", keep_alive="5m"), HELLO, [], "stop"),
        (chat("hi", options={"num_predict": 2}), "Hello there", [], "length"),
        (
            chat("hi", options={"num_predict": -1, "temperature": 0, "top_k": 5, "repeat_penalty": 1.0}),
            HELLO,
            [],
            "stop",
        ),
        (chat("one ends", options={"stop": ["STOP"]}), "one ", [], "stop"),
        (chat("a call", tools=[TOOL]), "See here.", [CALL], "stop"),
        (chat("a twice", tools=[TOOL]), "", [CALL, CALL], "stop"),
    ],
)
def test_chats(ask: Any, body: dict[str, Any], content: str, calls: list[Any], reason: str) -> None:
    status, whole = ask("POST", CHAT, {**body, "stream": False})
    message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
    assert status == 200 and whole["message"] == message and (whole["done"], whole["done_reason"]) == (True, reason)
    assert all(type(whole[name]) is int for name in COUNTS | TIMES) and whole["model"] == "tiny"
    status, stream = ask("POST", CHAT, body)  # a stream, unless the request says otherwise
    *parts, last = lines_of(stream)
    assert status == 200 and set(last) == set(whole) and last["message"] == {"role": "assistant", "content": ""}
    assert {name: last[name] for name in COUNTS} == {name: whole[name] for name in COUNTS}
    assert "".join(part["message"]["content"] for part in parts) == content
    assert [call for part in parts for call in part["message"].get("tool_calls", [])] == calls
    assert not any(part["done"] for part in parts) and (last["done"], last["done_reason"]) == (True, reason)


@rows(
    ("body", "response", "reason"),
    [
        (text("hi"), HELLO, "stop"),
        (text("hi", system="be", context=[], suffix="", template=""), HELLO, "stop"),
        (text("hi", options={"num_predict": 2}), "Hello there", "length"),
        (text("hi", options={"num_predict": 1 << 20}), HELLO, "stop"),  # the context is the limit
        (text("hi <|plain|>", raw=True, options={"num_predict": 1 << 20}), HELLO, "stop"),
        (text("hi <|call|>", raw=True, think=False),
         'See here. <tool_call>{"name": "f", "arguments": {"x": "y"}}</tool_call>', "stop"),
    ],
)  # fmt: skip
def test_texts(ask: Any, body: dict[str, Any], response: str, reason: str) -> None:
    status, whole = ask("POST", GENERATE, {**body, "stream": False})
    assert status == 200 and (whole["response"], whole["done_reason"]) == (response, reason)
    *parts, last = lines_of(ask("POST", GENERATE, body)[1])
    assert "".join(part["response"] for part in parts) == response and last["response"] == ""
    assert (last["done"], last["done_reason"], last["eval_count"]) == (True, reason, whole["eval_count"])


def test_the_prompt_is_that_of_a_chat(ask: Any) -> None:
    _, whole = ask("POST", GENERATE, text("hi", system="be", stream=False))
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    _, same = ask("POST", CHAT, {"model": "tiny", "messages": messages, "stream": False})
    assert whole["prompt_eval_count"] == same["prompt_eval_count"]
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
               {"role": "tool", "tool_name": "f", "content": "42"}]  # fmt: skip
    _, after = ask("POST", CHAT, {"model": "tiny", "messages": history, "stream": False})
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": "y"}'}}
    history[1:] = [{"role": "assistant", "content": None, "tool_calls": [call]},
                   {"role": "tool", "tool_call_id": "c", "content": "42"}]  # fmt: skip
    _, openai = ask("POST", "/v1/chat/completions", {"model": "tiny", "messages": history})
    assert after["prompt_eval_count"] == openai["usage"]["prompt_tokens"]


def test_reasoning(ask: Any) -> None:
    counts = []
    for think in (True, False, "high"):
        body = chat("a thought", model="thinking", think=think)
        _, whole = ask("POST", CHAT, {**body, "stream": False})
        assert whole["message"] == {"role": "assistant", "content": "done", "thinking": "hm hm"}
        parts = [line["message"] for line in lines_of(ask("POST", CHAT, body)[1])]
        assert "".join(part.get("thinking", "") for part in parts) == "hm hm"
        assert "".join(part["content"] for part in parts) == "done"
        counts.append(whole["prompt_eval_count"])
    assert counts[0] > counts[1] and counts[0] == counts[2]  # the template was told
    _, whole = ask("POST", GENERATE, text("a thought", model="thinking", stream=False))
    assert (whole["response"], whole["thinking"]) == ("done", "hm hm")


def test_whole_numbers_of_any_size(scripted: Server, connect: Any) -> None:
    body = json.dumps(chat("a large", tools=[TOOL], stream=False)).encode()
    with connect(scripted) as client:
        assert b'{"x": 123456789012345678901234567890}' in client.ask("POST", CHAT, body)[2]


def test_formats(ask: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    options = {"num_predict": 300}
    for body in (text("hi", format=schema, options=options), text("hi", format="json", options=options)):
        _, whole = ask("POST", GENERATE, {**body, "stream": False})
        assert isinstance(json.loads(whole["response"]), dict)
    _, whole = ask("POST", CHAT, chat("hi", format=schema, options=options, stream=False))
    assert json.loads(whole["message"]["content"]) == {}


def test_log_probabilities(ask: Any) -> None:
    for target, body in ((CHAT, chat("hi")), (GENERATE, text("hi")), (GENERATE, text("hi <|plain|>", raw=True))):
        body |= {"logprobs": True, "top_logprobs": 2}
        _, whole = ask("POST", target, {**body, "stream": False})
        assert "".join(each["token"] for each in whole["logprobs"]).startswith(HELLO)
        assert {len(each["top_logprobs"]) for each in whole["logprobs"]} == {2}
        parts = lines_of(ask("POST", target, body)[1])
        assert [each for part in parts for each in part.get("logprobs", [])] == whole["logprobs"]


def test_a_request_without_a_prompt_asks_whether_the_model_is_there(ask: Any) -> None:
    for target, body in ((CHAT, {"messages": []}), (CHAT, {}), (GENERATE, {"prompt": ""}), (GENERATE, {})):
        status, reply = ask("POST", target, {"model": "tiny", **body})
        assert status == 200 and (reply["done"], reply["done_reason"]) == (True, "load")
        assert ask("POST", target, {"model": "no", **body})[0] == 404


WRONG = [
    (CHAT, {"messages": 5, "model": "tiny"}, "'messages' is wrong"),
    (CHAT, {"messages": ["hi"], "model": "tiny"}, "'messages[0]' is wrong"),
    (CHAT, {"messages": [{"role": "user", "content": "hi", "images": ["aGk="]}], "model": "tiny"},
     "'messages[0].images' is not supported"),
    (CHAT, chat("hi", format="xml"), "'format' is wrong"),
    (CHAT, chat("hi", think="much"), "'think' is wrong"),
    (CHAT, chat("hi", options={"temperature": 5}), "'options.temperature' is wrong"),
    (CHAT, chat("hi", options=5), "'options' is wrong"),
    (CHAT, chat("hi", n=2), "'n' is not supported: a request has one text here"),
    (CHAT, chat("hi", tools=[{"type": "x"}]), "tools[0]"),
    (CHAT, chat("hi", stream="no"), "'stream' is wrong"),
    (CHAT, chat("hi", keep_alive=True), "'keep_alive' is wrong; expected seconds, or a duration"),
    (CHAT, chat("hi", keep_alive={}), "'keep_alive' is wrong"),
    (CHAT, chat("hi", options={"num_predict": 1.5}), "'options.num_predict' is wrong; expected a whole number"),
    (CHAT, chat("hi", options={"repeat_penalty": -1}), "'options.repeat_penalty' is wrong; expected a number above 0"),
    (GENERATE, text("hi", suffix="b"), "'suffix' is not supported"),
    (GENERATE, text("hi", template="{{ .Prompt }}"), "'template' is not supported"),
    (GENERATE, text("hi", context=[1]), "'context' is not supported"),
    (GENERATE, text("hi", images=["aGk="]), "'images' is not supported"),
    (GENERATE, text("hi", raw=5), "'raw' is wrong"),
    (GENERATE, b"{", "not JSON"),
    (GENERATE, {"prompt": "hi"}, "'model'"),
]  # fmt: skip


@rows(("target", "body", "words"), WRONG)
def test_wrong_requests(ask: Any, target: str, body: Any, words: str) -> None:
    status, reply = ask("POST", target, body)
    assert status == 400 and list(reply) == ["error"] and words in reply["error"], reply


def test_errors_of_the_transport(ask: Any) -> None:
    for method, target, status in (("GET", CHAT, 405), ("POST", "/api/nope", 404)):
        code, reply = ask(method, target)
        assert code == status and list(reply) == ["error"]
    for method, action in (
        ("POST", "pull"),
        ("POST", "push"),
        ("POST", "create"),
        ("POST", "copy"),
        ("DELETE", "delete"),
    ):
        code, reply = ask(method, f"/api/{action}", {"model": "tiny"})
        assert code == 501 and f"does not {action} models" in reply["error"]


@rows(
    ("options", "expected"),
    [
        *(({"num_predict": number}, {"max_tokens": None}) for number in (-2, -1, 0, None)),
        ({"num_predict": 5.0}, {"max_tokens": 5}),
        ({"seed": 0, "temperature": 0}, {"seed": 0, "temperature": 0.0}),
        ({"seed": -1}, {"seed": None}),
        *(({"top_k": number}, {"top_k": 0}) for number in (-1, 0)),
        ({"top_p": 0, "min_p": 0}, {"top_p": 0.0, "min_p": 0.0}),
        ({"top_p": 1, "min_p": 1}, {"top_p": 1.0, "min_p": 1.0}),
        *(({"repeat_penalty": number}, {"repetition_penalty": 1.0}) for number in (0, 0.0, 1)),
        ({"stop": []}, {"stop": ()}),
        ({"stop": "a"}, {"stop": ("a",)}),
    ],
)
def test_edges_of_options(scripted: Server, options: dict[str, Any], expected: dict[str, Any]) -> None:
    """They mean what they mean to Ollama."""
    (model,) = [each.text for each in scripted.models if each.name == "tiny"]
    assert model is not None
    for read, body in ((read_chat_request, chat("hi")), (read_generate_request, text("hi", raw=True))):
        (request,) = read(Fields({**body, "options": options}), model).requests("a")
        values = {name: getattr(request if hasattr(request, name) else request.sampling, name) for name in expected}
        assert values == expected


def test_parameters_without_effect(scripted: Server, connect: Any) -> None:
    """Those that could change an answer are named in the header; how long Ollama keeps a model has no meaning here."""
    with connect(scripted) as client:

        def header(**more: Any) -> str:
            status, headers, reply = client.ask("POST", CHAT, json.dumps(chat("hi", stream=False, **more)).encode())
            assert status == 200, reply
            return headers.get("ox-warning", "")

        for keep_alive in ("5m", "1h30m", "0", -1, 0, 3600, 1.5, None):
            assert header(keep_alive=keep_alive, truncate=False, shift=True, format="", think=None) == ""
        for name in WITHOUT_EFFECT:
            assert header(options={name: 1}) == f"unused=options.{name}"
        assert header(options={"mirostat": 2, "tfs_z": 1, "temprature": 1}) == (
            "unused=options.tfs_z, options.mirostat; unknown=options.temprature (try options.temperature)"
        )
    with connect(scripted) as client:
        _, headers, _ = client.ask("POST", CHAT, json.dumps(chat("hi", stream=None)).encode())
    assert headers["content-type"] == "application/x-ndjson"  # null is absent


def test_models(ask: Any) -> None:
    for target in ("/api/tags", "/api/ps"):
        _, reply = ask("GET", target)
        entries = {entry["name"]: entry for entry in reply["models"]}
        assert set(entries) == {"tiny:latest", "thinking:latest"}
        assert all(entry["model"] == name and entry["details"]["format"] == "onnx" for name, entry in entries.items())
    for name in ({"model": "tiny"}, {"name": "tiny:latest"}):
        _, shown = ask("POST", "/api/show", name)
        assert shown["capabilities"] == ["completion", "tools"] and "<tool_call>" in shown["template"]
        assert shown["model_info"]["onnx.context_length"] == 8192
    _, shown = ask("POST", "/api/show", {"model": "thinking"})
    assert shown["capabilities"] == ["completion", "tools", "thinking"]
    assert ask("POST", "/api/show", {"model": "no"})[0] == 404
    _, reply = ask("GET", "/api/version")
    assert list(reply) == ["version"]


def test_keys(ask: Any, guarded: Server) -> None:
    for target, body in ((CHAT, chat("hi", stream=False)), (GENERATE, text("hi")), ("/api/show", {"model": "tiny"})):
        for key, status in (("a", 200), ("b", 403), ("c", 401)):
            code, reply = ask("POST", target, body, server=guarded, authorization=f"Bearer {key}")
            assert code == status and (code == 200 or list(reply) == ["error"])
    assert ask("GET", "/api/tags", server=guarded, x_api_key="b") == (200, {"models": []})
    assert ask("GET", "/api/tags", server=guarded)[0] == 401


def test_with_the_package_of_ollama(scripted: Server) -> None:
    ollama = pytest.importorskip("ollama", reason="the package ollama is not installed")
    with ollama.Client(host=scripted.url) as client:
        found = next(each for each in client.list().models if each.model == "tiny:latest")
        message = {"role": "user", "content": "a call"}
        answer = client.chat(found.model, [message], tools=[TOOL]).message
        assert answer.tool_calls[0].function.arguments == {"x": "y"}
        result = {"role": "tool", "tool_name": "f", "content": "42"}
        assert client.chat(found.model, [message, answer, result], tools=[TOOL]).message.content == HELLO
        assert "".join(part.response for part in client.generate("tiny", "hi", stream=True)) == HELLO
        with pytest.raises(ollama.ResponseError, match="no model"):
            client.chat("no", [message])
