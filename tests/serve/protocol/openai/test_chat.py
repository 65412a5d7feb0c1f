"""/v1/chat/completions through OpenAI's own package."""

from __future__ import annotations

import json
from typing import Any

import pytest

GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_completion_tokens": 12}
USER = {"role": "user", "content": "hi"}


def text_of(pieces: Any) -> str:
    return "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)


def test_an_answer_alone_and_in_pieces(openai_client: Any) -> None:
    create = openai_client.chat.completions.create
    whole = create(**GREEDY, messages=[USER])
    choice = whole.choices[0]
    assert whole.object == "chat.completion" and choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "length" and whole.usage.completion_tokens == 12
    options = {"include_usage": True}
    first, *pieces, last = create(**GREEDY, messages=[USER], stream=True, stream_options=options)
    assert first.choices[0].delta.role == "assistant" and first.object == "chat.completion.chunk"
    assert text_of(pieces) == choice.message.content and pieces[-1].choices[0].finish_reason == "length"
    assert last.usage.completion_tokens == 12 and last.choices == []


def test_the_prompt_is_the_templates(openai_client: Any, tokens: Any) -> None:
    prompt = (
        "<|im_start|>system\nbe\n<|im_end|>".replace("\n<", "<")
        + "\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokens(prompt)
    raw = openai_client.completions.create(model="tiny", temperature=0, max_tokens=12, prompt=ids)
    for messages in (
        [{"role": "system", "content": "be"}, USER],
        [{"role": "developer", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    ):
        answer = openai_client.chat.completions.create(**GREEDY, messages=messages)
        assert answer.choices[0].message.content == raw.choices[0].text
        assert answer.usage.prompt_tokens == len(ids)


def test_logprobs(openai_client: Any) -> None:
    create = openai_client.chat.completions.create
    answer = create(**GREEDY, messages=[USER], logprobs=True, top_logprobs=3).choices[0]
    whole = answer.logprobs.content
    assert len(whole) == 12 and all(len(each.top_logprobs) == 3 for each in whole)
    assert all(each.logprob == each.top_logprobs[0].logprob for each in whole)
    assert all(bytes(each.bytes).decode(errors="replace") == each.token for each in whole)
    spelled = b"".join(bytes(each.bytes) for each in whole if each.token != "<s>")  # and parts of characters
    assert spelled.decode(errors="replace") == answer.message.content
    pieces = create(**GREEDY, messages=[USER], logprobs=True, stream=True)
    parts = [piece.choices[0].logprobs for piece in pieces]
    assert [each.token for part in parts if part for each in part.content] == [each.token for each in whole]


def test_json(openai_client: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    answer = openai_client.chat.completions.create(
        model="tiny", temperature=0, max_tokens=100, messages=[USER], response_format=form
    )
    assert json.loads(answer.choices[0].message.content)["a"] in (1, 2)


def test_a_conversation_with_calls_goes_on(openai_client: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "42"}]  # fmt: skip
    assert openai_client.chat.completions.create(**GREEDY, messages=messages).choices[0].message.content


def test_with_streaming_helpers(openai_client: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    forced = {"guided_choice": ["yes"]}
    with openai_client.chat.completions.stream(**GREEDY, messages=[USER], extra_body=forced) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "yes"
