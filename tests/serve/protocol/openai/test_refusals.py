"""Requests that are refused, in OpenAI's form, and what the server does after them."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from rows import rows

from ox.serve import Server
from ox.serve.protocol.openai import completions
from ox.serve.repository.entry import LOADING

COMPLETION: dict[str, Any] = {"model": "tiny", "prompt": "a", "max_tokens": 2}
CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
TOOL = {"type": "function", "function": {"name": "f"}}

WRONG: list[tuple[dict[str, Any], str | None, str]] = [
    ({"prompt": "a"}, "model", "Missing required parameter: 'model'"),
    ({"model": 5, "prompt": "a"}, "model", "a string"),
    ({"model": "tiny"}, "prompt", "Missing required parameter: 'prompt'"),
    ({**COMPLETION, "prompt": ""}, "prompt", "no tokens"),
    ({**COMPLETION, "prompt": []}, "prompt", "a string, a list of strings"),
    ({**COMPLETION, "prompt": [1, 100_000]}, "prompt", "token ids from 0 to"),
    ({**COMPLETION, "prompt": [-1]}, "prompt", "token ids from 0 to"),
    ({**COMPLETION, "prompt": [True]}, "prompt", "token ids"),
    ({**COMPLETION, "prompt": ["a", [1]] * 100}, "prompt", "at most 128 prompts"),
    ({**COMPLETION, "prompt": {"a": 1}}, "prompt", "a string, a list of strings"),
    ({**COMPLETION, "prompt": ["a"] * 20, "n": 20}, "n", "at most 128"),
    ({**COMPLETION, "prompt": [1] * 2000}, "max_tokens", "longer than the model's context"),
    ({**COMPLETION, "prompt": "a" * 250, "max_tokens": 100}, "max_tokens", "longer than the model's context"),
    ({**COMPLETION, "prompt": "a" * 100_000}, "prompt", "longer than the model's context"),
    ({**COMPLETION, "max_tokens": -1}, "max_tokens", "a whole number from 0"),
    ({**COMPLETION, "max_tokens": 1 << 70}, None, ""),
    ({**COMPLETION, "n": 100_000}, "n", "a whole number from 1 to 128"),
    ({**COMPLETION, "n": 1.5}, "n", "a whole number"),
    ({**COMPLETION, "logprobs": 1000}, "logprobs", "a whole number from 0 to 20"),
    ({**COMPLETION, "best_of": 3}, "best_of", "'best_of' is not supported"),
    ({**COMPLETION, "suffix": "z"}, "suffix", "'suffix' is not supported: this model makes only what follows"),
    ({**COMPLETION, "stream": True, "prompt_logprobs": 1}, "prompt_logprobs", "not for streams"),
    ({**COMPLETION, "prompt_logprobs": 21}, "prompt_logprobs", "a whole number from 0 to 20"),
    ({**COMPLETION, "use_beam_search": True}, "use_beam_search", "not supported"),
    ({**COMPLETION, "min_tokens": 3}, "min_tokens", "at most 2"),
    ({**COMPLETION, "min_tokens": -1}, "min_tokens", "a whole number from 0"),
    ({**COMPLETION, "length_penalty": "a"}, "length_penalty", "a number or a whole number"),
    ({**COMPLETION, "guided_json": "{"}, "guided_json", "a JSON schema"),
    ({**COMPLETION, "guided_choice": ["a", "b" * 10_001]}, "guided_choice", "at most 10,000 characters; got 10001"),
    ({**COMPLETION, "guided_grammar": ""}, "guided_grammar", "a grammar in Lark's form"),
    ({**COMPLETION, "structured_outputs": {}}, "structured_outputs", "one of json, regex, choice"),
    ({**COMPLETION, "structured_outputs": {"regex": 5}}, "structured_outputs.regex", "a regular expression"),
    ({**COMPLETION, "structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag",
     "not supported"),
    ({**COMPLETION, "structured_outputs": {"regex": "a", "json_object": True}}, "structured_outputs", "contradict"),
    ({**COMPLETION, "temperature": -1}, "temperature", "a number from 0 to 2"),
    ({**COMPLETION, "temperature": "hot"}, "temperature", "a number from 0 to 2"),
    ({**COMPLETION, "top_p": -0.1}, "top_p", "from 0"),
    ({**COMPLETION, "top_p": 1.5}, "top_p", "from 0 to 1"),
    ({**COMPLETION, "presence_penalty": 3}, "presence_penalty", "from -2 to 2"),
    ({**COMPLETION, "seed": 1.5}, "seed", "a whole number"),
    ({**COMPLETION, "stop": [""]}, "stop", "none of them empty"),
    ({**COMPLETION, "stop": ["a"] * 100}, "stop", "at most 16"),
    ({**COMPLETION, "logit_bias": {"x": 1}}, "logit_bias", "ids of tokens"),
    ({**COMPLETION, "logit_bias": {"999999": 1}}, "logit_bias", "ids of tokens"),
    ({**COMPLETION, "logit_bias": {"1": 1000}}, "logit_bias", "from -100 to 100"),
    ({**COMPLETION, "stream": "yes"}, "stream", "true or false"),
    ({**COMPLETION, "stream_options": {"include_usage": True}}, "stream_options", "only for streams"),
    ({**COMPLETION, "stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage", "true or"),
    ({**COMPLETION, "guided_json": {}, "guided_regex": "a"}, "guided_json", "contradict"),
    ({**COMPLETION, "guided_regex": "a", "response_format": {"type": "json_object"}}, "response_format", "contradict"),
    ({**COMPLETION, "response_format": {"type": "xml"}}, "response_format", "json_schema"),
    ({**COMPLETION, "response_format": {"type": "json_object", "schema": 5}}, "response_format.json_object", "schema"),
    ({**COMPLETION, "response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}},
     "response_format.strict", "true or false"),
    ({**COMPLETION, "stop_token_ids": [1 << 40]}, "stop_token_ids", "a list of at most 16 whole numbers"),
    ({**COMPLETION, "user": 5}, "user", "a string"),
    ({**COMPLETION, "store": "yes"}, "store", "true or false"),
    ({**COMPLETION, "metadata": []}, "metadata", "an object"),
    ({"model": "tiny"}, "messages", "Missing required parameter: 'messages'"),
    ({**CHAT, "messages": []}, "messages", "a list of 1 to"),
    ({**CHAT, "messages": ["a"]}, "messages[0]", '{"role": "user"'),
    ({**CHAT, "messages": [{"role": "king", "content": "a"}]}, "messages[0].role", "system, developer, user"),
    ({**CHAT, "messages": [{"role": "user"}]}, "messages[0].content", "has no content"),
    ({**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content", "no text"),
    ({**CHAT, "messages": [{"role": "user", "content": "a" * 300}]}, "max_tokens", "longer than the model's context"),
    ({**CHAT, "max_completion_tokens": 3}, "max_tokens", "contradict each other"),
    ({**CHAT, "top_logprobs": 3}, "top_logprobs", "needs 'logprobs'"),
    ({**CHAT, "logprobs": 3}, "logprobs", "true or false"),
    ({**CHAT, "tools": [{"type": "retrieval"}]}, "tools[0]", '"type": "function"'),
    ({**CHAT, "tool_choice": "required"}, "tool_choice", "functions in 'tools'"),
    ({**CHAT, "tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice", "'tools'; got 'g'"),
    ({**CHAT, "tools": [TOOL], "tool_choice": 5}, "tool_choice", '"required"'),
    ({**CHAT, "tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
        {"type": "function", "function": {"name": "g"}}]}}}, "tool_choice", "got 'g'"),
    ({**CHAT, "tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
        {"type": "function", "function": {"name": ["f"]}}]}}}, "tool_choice", "allowed_tools"),
    ({**CHAT, "tools": [TOOL, TOOL]}, "tools[1].function.name", "same name"),
    ({**CHAT, "tools": [TOOL] * 1000}, "tools", "at most 128 tools; got a list of 1000"),
    ({**CHAT, "tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "letters"),
    ({**CHAT, "tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
     "tools[0].function.parameters", "a JSON schema"),
    ({**CHAT, "tools": [{"type": "function", "function": {"name": "f", "strict": "yes"}}]},
     "tools[0].function.strict", "true or false"),
    ({**CHAT, "functions": []}, "functions", "try 'tools'"),
    ({**CHAT, "modalities": ["audio"]}, "modalities", "not supported"),
    ({**CHAT, "web_search_options": {}}, "web_search_options", "this server searches nothing"),
    ({**CHAT, "chat_template": "{{ messages }}"}, "chat_template", "try 'chat_template_kwargs'"),
    ({**CHAT, "chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages", "may not set"),
    ({**CHAT, "chat_template_kwargs": {"bos_token": "a"}}, "chat_template_kwargs.bos_token", "may not set"),
    ({**CHAT, "chat_template_kwargs": {"a b": 1}}, "chat_template_kwargs.a b", "names of variables"),
    ({**CHAT, "chat_template_kwargs": {"a": "b" * 66_000}}, "chat_template_kwargs", "at most 65536 bytes"),
    ({**CHAT, "chat_template_kwargs": []}, "chat_template_kwargs", "an object"),
    ({**CHAT, "documents": [{"text": "a"}]}, "documents", "has no place for them"),
    ({**CHAT, "reasoning_effort": 3}, "reasoning_effort", "a string"),
    ({**CHAT, "continue_final_message": True, "add_generation_prompt": True}, "continue_final_message", "both"),
    ({**CHAT, "stream": True, "prompt_logprobs": 1}, "prompt_logprobs", "not for streams"),
]  # fmt: skip


@rows(("body", "param", "words"), WRONG)
def test_wrong_requests(client: Any, body: dict[str, Any], param: str | None, words: str) -> None:
    chat = "messages" in body or param == "messages"
    target = "/v1/chat/completions" if chat else "/v1/completions"
    data = json.dumps(body).encode()
    status, headers, reply = client.ask("POST", target, data)
    error = json.loads(reply)["error"]
    assert status == 400 and headers["content-type"] == "application/json"
    assert set(error) == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    assert words in error["message"], error
    assert param is None or error["param"] == param, error
    status, _, reply = client.ask("POST", "/v1/completions", json.dumps(COMPLETION).encode())
    assert status == 200, reply  # others are unharmed


@rows(
    ("body", "status", "words"),
    [(b'{"model": "tiny", "prompt": "\xff"}', 400, "not JSON"), (b"[" * 100_000, 400, "not JSON"),
     (b"[]", 400, "object"),
     (b'{"model": "tiny", "prompt": "' + b"a" * 300_000 + b'"}', 413, "too large"), (b"", 400, "'model'"),
     (b'{"model": "tiny", "temperature": NaN}', 400, "NaN"), (b'{"model": "nope", "prompt": "a"}', 404, "'nope'"),
     (b'{"model": "tiny", "prompt": "\\ud800"}', 400, "not JSON"),
     (b'{"model": "tiny", "guided_json": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b', "prompt": "a"}', 400,
      "nested too deep"),
     (b'{"model": "tiny", "guided_json": ' + b'{"a":' * 1010 + b"1" + b"}" * 1010 + b', "prompt": "a"}', 400,
      "nested too deep")],
)  # fmt: skip
def test_wrong_bodies(client: Any, body: bytes, status: int, words: str) -> None:
    got, _, reply = client.ask("POST", "/v1/completions", body)
    if got == 501 and b"llguidance" in reply:
        pytest.skip("the package llguidance is not installed")
    assert got == status and words in json.loads(reply)["error"]["message"], reply
    assert b"tensor" not in reply  # a hint for others


def test_log_probabilities_of_prompts_are_bounded(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "MOST_OF_PROMPTS", 11)
    for more, name in (({"prompt_logprobs": 1}, "prompt_logprobs"), ({"logprobs": 1, "echo": True}, "logprobs")):
        for prompt, n, expected in (([1, 2, 3], 1, 200), ([1, 2, 3], 2, 400), ([[1, 2, 3]] * 2, 1, 400)):
            body = json.dumps({**COMPLETION, "prompt": prompt, "n": n, **more}).encode()
            status, _, answer = client.ask("POST", "/v1/completions", body)
            assert status == expected, answer
            if status == 400:
                error = json.loads(answer)["error"]
                assert error["param"] == name and "at most 11; got 12" in error["message"]
    monkeypatch.setattr(completions, "MOST_IN_STREAMS", 3)
    body = {**COMPLETION, "prompt": [1, 2], "logprobs": 1, "echo": True}
    for stream, expected in ((False, 200), (True, 400)):
        status, _, answer = client.ask("POST", "/v1/completions", json.dumps({**body, "stream": stream}).encode())
        assert status == expected, answer
    assert "in one stream; expected at most 3; got 4" in json.loads(answer)["error"]["message"]


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions", "/v2/models/tiny/generate"])
def test_the_limit_of_json_holds_after_decompression(client: Any, route: str) -> None:
    body = gzip.compress(b'{"model": "tiny", "text_input": "' + b"a" * 300_000 + b'"}')
    got, _, reply = client.ask("POST", route, body, {"content-encoding": "gzip"})
    assert got == 413 and b"the JSON is too large" in reply


def test_errors_of_the_transport_have_the_form_of_the_route(client: Any) -> None:
    for method, target, status in (("GET", "/v1/nope", 404), ("DELETE", "/v1/models", 405)):
        got, _, reply = client.ask(method, target)
        assert got == status and json.loads(reply)["error"]["message"]
    got, _, reply = client.ask("GET", "/v2/nope")
    assert got == 404 and isinstance(json.loads(reply)["error"], str)
    client.send(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 999999999\r\n\r\n")
    got, _, reply = client.reply()
    assert got == 413 and json.loads(reply)["error"]["code"] == "request_too_large"


def test_a_model_that_is_being_loaded(client: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI's package asks again after 503, and not after 400."""
    repository = server.service.repository
    (slot,) = repository.entries["tiny"].slots.values()
    monkeypatch.setattr(slot, "state", LOADING)
    monkeypatch.setattr(repository, "routes", {})
    status, headers, reply = client.ask("POST", "/v1/completions", json.dumps(COMPLETION).encode())
    error = json.loads(reply)["error"]
    assert status == 503 and headers["retry-after"] and error["code"] == "model_not_ready"
    assert "is not ready; got LOADING" in error["message"] and error["type"] == "server_error"


def test_a_model_that_makes_no_texts(mlp: Any, connect: Any) -> None:
    with Server([mlp]) as running, connect(running) as client:
        status, _, reply = client.ask("POST", "/v1/completions", b'{"model": "mlp", "prompt": "a"}')
        assert status == 400 and "makes no texts" in json.loads(reply)["error"]["message"]
        assert json.loads(client.ask("GET", "/v1/models")[2])["data"] == []


def test_the_package_raises_its_own_classes(openai_client: Any) -> None:
    import openai

    with pytest.raises(openai.NotFoundError) as missing:
        openai_client.completions.create(model="nope", prompt="a")
    assert missing.value.code == "model_not_found" and missing.value.param == "model"
    with pytest.raises(openai.BadRequestError) as long:
        openai_client.completions.create(model="tiny", prompt="a" * 1000)
    assert long.value.code == "context_length_exceeded"
    assert "this model's maximum context length is 256 tokens" in str(long.value)
    with pytest.raises(openai.BadRequestError, match="this model's maximum context length is 256 tokens"):
        openai_client.completions.create(model="tiny", prompt="a", max_tokens=256)
