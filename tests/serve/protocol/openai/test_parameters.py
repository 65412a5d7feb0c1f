"""Parameters of vLLM and of programs that evaluate models: log-probabilities of prompts, forms, templates."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from rows import rows

from ox.serve import Server
from ox.serve.generation.request import GenerationRequest
from ox.serve.protocol.openai.completions import read_completion
from ox.serve.protocol.text.chat_request import read_chat
from ox.serve.protocol.text.chat_template import ChatTemplate
from ox.serve.protocol.text.fields import Fields, ParameterError

Ask = Callable[..., tuple[int, Any]]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0}
HI = [{"role": "user", "content": "Hi"}]


def choices(ask: Ask, server: Server, path: str, **body: Any) -> list[dict[str, Any]]:
    status, answer = ask("POST", path, {**GREEDY, **body}, server)
    assert status == 200, answer
    found: list[dict[str, Any]] = answer["choices"]
    return found


def test_log_probabilities_of_a_prompt_are_those_of_the_same_text(ask: Ask, server: Server, tokens: Any) -> None:
    """What lm-evaluation-harness asks for: a text that was generated has the same ones when it is a prompt."""
    prompt = tokens("the cat")
    (text,) = choices(ask, server, "/v1/completions", prompt=prompt, max_tokens=8, logprobs=2, ignore_eos=True,
                      return_tokens_as_token_ids=True)  # fmt: skip
    made = [int(name.removeprefix("token_id:")) for name in text["logprobs"]["tokens"]]
    for given, more in ((prompt + made, {"max_tokens": 0}), ([prompt + made, [5]], {"max_tokens": 1, "n": 2})):
        echoed, *others = choices(ask, server, "/v1/completions", prompt=given, echo=True, logprobs=2, seed=1, **more)
        found, count = echoed["logprobs"], len(prompt) + len(made)
        assert {len(each) for each in found.values()} == {count + more["max_tokens"]}
        assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None
        values = found["token_logprobs"][1:count]
        assert values[len(prompt) - 1 :] == pytest.approx(text["logprobs"]["token_logprobs"], abs=1e-4)
        for value, top in zip(values, found["top_logprobs"][1:count], strict=True):
            assert 2 <= len(top) <= 3 and value in top.values() and max(top.values()) >= value
        assert found["text_offset"][:2] == [0, 3] and echoed["text"].startswith("the cat")
        if others:  # another text of the same prompt, and two of one token
            assert others[0]["logprobs"]["token_logprobs"][:count] == found["token_logprobs"][:count]
            assert [each["logprobs"]["token_logprobs"][0] for each in others[1:]] == [None, None]
            assert [len(each["logprobs"]["tokens"]) for each in others[1:]] == [2, 2]


def test_a_stream_has_the_same_log_probabilities(ask: Ask, server: Server) -> None:
    body = {"prompt": "the cat", "echo": True, "logprobs": 1, "max_tokens": 3, "ignore_eos": True}
    (whole,) = choices(ask, server, "/v1/completions", **body)
    stream = ask("POST", "/v1/completions", {**GREEDY, **body, "stream": True}, server)[1]
    pieces = [
        json.loads(line[6:])["choices"][0] for line in stream.decode().split("\n\n") if line.startswith("data: {")
    ]
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    for name, values in whole["logprobs"].items():
        assert [value for piece in pieces if piece["logprobs"] for value in piece["logprobs"][name]] == values, name


def test_max_tokens_0(ask: Ask, server: Server) -> None:
    status, answer = ask("POST", "/v1/completions", {**GREEDY, "prompt": "abc", "echo": True, "max_tokens": 0}, server)
    assert status == 200 and answer["usage"]["completion_tokens"] == 0 and answer["usage"]["prompt_tokens"] > 0
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("abc", "length")


def test_prompt_logprobs_in_the_form_of_vllm(ask: Ask, server: Server, tokens: Any) -> None:
    prompt = tokens("the cat")
    (choice,) = choices(ask, server, "/v1/completions", prompt=prompt, prompt_logprobs=1, max_tokens=1)
    assert choice["logprobs"] is None and choice["prompt_logprobs"][0] is None
    (echoed,) = choices(ask, server, "/v1/completions", prompt=prompt, echo=True, logprobs=1, max_tokens=0)
    for token, place, value in zip(
        prompt[1:], choice["prompt_logprobs"][1:], echoed["logprobs"]["token_logprobs"][1:], strict=True
    ):
        assert place[str(token)]["logprob"] == pytest.approx(value, abs=1e-6) and isinstance(
            place[str(token)]["decoded_token"], str
        )
        assert {entry["rank"] for entry in place.values()} == {1, place[str(token)]["rank"]}
    texts = choices(ask, server, "/v1/completions", prompt=prompt, prompt_logprobs=1, max_tokens=1, n=2)
    assert [text["prompt_logprobs"] for text in texts] == [choice["prompt_logprobs"]] * 2  # computed once
    body = {**GREEDY, "messages": HI, "prompt_logprobs": 0, "max_tokens": 1, "n": 2}
    answer = ask("POST", "/v1/chat/completions", body, server)[1]
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert all(len(place) == 1 for place in answer["prompt_logprobs"][1:])


@rows(
    ("form", "answer"),
    [({"choice": ["maybe", "never"]}, ("maybe", "never")), ({"regex": "[0-9]{3}"}, None),
     ({"grammar": 'start: "x" "y"?'}, ("x", "xy")), ({"json_object": True}, None),
     ({"json": {"enum": ["red"]}}, ('"red"',)), ({"json": '{"enum": ["red"]}', "disable_fallback": True}, ('"red"',))],
)  # fmt: skip
def test_structured_outputs(ask: Ask, scripted: Server, form: dict[str, Any], answer: tuple[str, ...] | None) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    (choice,) = choices(ask, scripted, "/v1/chat/completions", messages=HI, structured_outputs=form, max_tokens=30)
    text = choice["message"]["content"]
    if answer is not None:
        assert text in answer
    else:
        assert text.isdigit() and len(text) == 3 if "regex" in form else isinstance(json.loads(text), dict)


@rows(("path", "body"), [
    ("/v1/chat/completions", {"messages": HI, "response_format": {"type": "json_object", "schema": {"const": 5}}}),
    ("/v1/chat/completions", {"messages": HI, "response_format": {"type": "json_schema", "schema": {"const": 5}}}),
    ("/v1/completions", {"prompt": "a", "response_format": {"type": "json_object", "schema": {"const": 5}}}),
    ("/v1/responses", {"input": "Hi", "text": {"format": {"type": "json_object", "schema": {"const": 5}}}}),
])  # fmt: skip
def test_a_schema_beside_the_type(ask: Ask, scripted: Server, path: str, body: dict[str, Any]) -> None:
    """As llama.cpp and other servers have it."""
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    status, answer = ask("POST", path, {"model": "tiny", **body}, scripted)
    choice = answer["choices"][0] if "choices" in answer else {"text": answer["output"][0]["content"][0]["text"]}
    assert status == 200 and (choice.get("text") or choice["message"]["content"]) == "5"


def test_reasoning_tokens(ask: Ask, scripted: Server) -> None:
    body = {**GREEDY, "model": "thinking", "messages": [{"role": "user", "content": "a thought"}], "n": 2}
    _, whole = ask("POST", "/v1/chat/completions", body, scripted)
    assert whole["choices"][0]["message"]["reasoning_content"] == "hm hm"
    count = whole["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert 2 * 2 <= count < whole["usage"]["completion_tokens"]
    _, stream = ask("POST", "/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
    *_, last, _, _ = stream.decode().split("\n\n")
    usage = json.loads(last.removeprefix("data: "))["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": count}
    _, whole = ask("POST", "/v1/chat/completions", {**GREEDY, "messages": HI}, scripted)
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_usage_in_each_event(ask: Ask, scripted: Server) -> None:
    for path, more in (("/v1/completions", {"prompt": "<|plain|>"}), ("/v1/chat/completions", {"messages": HI})):
        body = {**GREEDY, **more, "stream": True, "stream_options": {"continuous_usage_stats": True}}
        stream = ask("POST", path, body)[1].decode()
        events = [json.loads(line[6:]) for line in stream.split("\n\n") if line.startswith("data: {")]
        counts = [event["usage"]["completion_tokens"] for event in events]
        assert counts == sorted(counts) and len(set(counts)) > 3 and all(event["choices"] for event in events)


REQUEST: list[tuple[dict[str, Any], str, Any]] = [
    ({"min_tokens": 3}, "min_tokens", 3), ({"skip_special_tokens": False}, "skip_special_tokens", False),
    ({"allowed_token_ids": [5]}, "allowed_token_ids", (5,)), ({"bad_words": ["a"]}, "bad_words", ("a",)),
    ({"include_stop_str_in_output": True, "stop": "a"}, "include_stop", True), ({"priority": 2}, "priority", 2),
    ({"prompt_logprobs": 2}, "prompt_logprobs", 2), ({"logprobs": 3, "echo": True}, "prompt_logprobs", 3),
    ({"max_tokens": 0}, "max_tokens", 0), ({}, "max_tokens", 16), ({"min_tokens": 20}, "max_tokens", 20),
    ({"truncate_prompt_tokens": 2}, "prompt", [2, 3]),
    ({"prompt": [1] * 9000, "truncate_prompt_tokens": -1, "max_tokens": 7}, "prompt", [1] * 8185),
]  # fmt: skip


@rows(("body", "name", "value"), REQUEST)
def test_what_the_engine_gets(scripted: Server, body: dict[str, Any], name: str, value: Any) -> None:
    model = scripted.service.repository.find("tiny").text
    assert model is not None
    for field in GenerationRequest.__dataclass_fields__.values():
        assert name != field.name or value != field.default, "the row would pass without its parameter"
    (request,) = read_completion(Fields({"prompt": [1, 2, 3], **body}), model).requests("")
    assert getattr(request, name) == value


TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}[go]{% if enable_thinking is false %}(no){% endif %}{{ reasoning_effort }}"
    "{% endif %}"
    "{% for document in documents or [] %}<{{ document.text }}>{% endfor %}"
)
BEGUN = [*HI, {"role": "assistant", "content": "Hi"}]
PROMPTS: list[tuple[dict[str, Any], str]] = [
    ({}, "[user]Hi[go]"), ({"add_generation_prompt": False}, "[user]Hi"),
    ({"chat_template_kwargs": {"enable_thinking": False}}, "[user]Hi[go](no)"),
    ({"reasoning_effort": "low"}, "[user]Hi[go]low"), ({"documents": [{"text": "a"}]}, "[user]Hi[go]<a>"),
    ({"messages": [{"role": role, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
                   for role in ("user", "assistant", "tool")]}, "[user]a\nb[assistant]ab[tool]a\nb[go]"),
    ({"messages": BEGUN, "continue_final_message": True}, "[user]Hi[assistant]Hi"),
    ({"messages": BEGUN, "continue_final_message": True, "add_generation_prompt": False}, "[user]Hi[assistant]Hi"),
]  # fmt: skip


@rows(("body", "prompt"), PROMPTS)
def test_variables_of_the_template(
    scripted: Server, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], prompt: str
) -> None:
    model = scripted.service.repository.find("tiny").text
    assert model is not None
    with monkeypatch.context() as patched:
        patched.setattr(model, "template", ChatTemplate(TEMPLATE, {}, "a test"))
        call = read_chat(Fields({"messages": HI, **body}), model)
    assert model.tokenizer.decode(list(call.prompt), special=True) == prompt and not call.options.remarks.header()


THOUGHTS = (
    "{% for message in messages %}[{{ message.role }}]{% if message.reasoning_content %}<think>\n"
    "{{ message.reasoning_content.strip('\n') }}\n</think>{% endif %}{{ message.content }}{% endfor %}"
)


@rows(("role", "message", "prompt", "begun"), [
    ("assistant", {"content": "<think>\nso"}, "<think>\nso", True),
    ("assistant", {"content": "<think>a</think>b<think>c"}, "<think>a</think>b<think>c", True),
    ("assistant", {"content": "<think>a</think>b"}, "<think>a</think>b", False),
    ("assistant", {"content": "a"}, "a", False), ("user", {"content": "is <think> a word"}, "is <think> a word", False),
    ("assistant", {"content": None, "reasoning_content": "so"}, "<think>\nso", True),
    ("assistant", {"content": "a", "reasoning_content": "so"}, "<think>\nso\n</think>a", False),
])  # fmt: skip
def test_reasoning_is_continued(
    scripted: Server, monkeypatch: pytest.MonkeyPatch, role: str, message: dict[str, Any], prompt: str, begun: bool
) -> None:
    model = scripted.service.repository.find("thinking").text
    assert model is not None
    with monkeypatch.context() as patched:
        patched.setattr(model, "template", ChatTemplate(THOUGHTS, {}, "a test"))
        body = {"messages": [*HI, {"role": role, **message}], "continue_final_message": True}
        call = read_chat(Fields(body), model)
    assert model.tokenizer.decode(list(call.prompt), special=True) == f"[user]Hi[{role}]{prompt}"
    assert call.reasoning_begun is begun


def test_a_message_without_text_is_not_continued(ask: Ask, scripted: Server) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": " "}], "continue_final_message": True}
    status, answer = ask("POST", "/v1/chat/completions", body)
    assert status == 400 and answer["error"]["message"].startswith("the last message has no text to continue")


def test_errors_name_the_parameter_as_the_client_does(scripted: Server) -> None:
    model = scripted.service.repository.find("tiny").text
    assert model is not None
    names = {"max_tokens": "max_output_tokens", "messages": "input"}
    for body, name in (({"max_tokens": 10**6}, "max_output_tokens"), ({"messages": [5]}, "input")):
        with pytest.raises(ParameterError, match=name if name == "input" else "longer") as wrong:
            read_chat(Fields({"messages": HI, **body}, names=names), model)
        assert wrong.value.param == name
