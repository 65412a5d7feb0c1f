"""/v1/completions through OpenAI's own package."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ox.serve import ModelConfig, Server
from ox.serve.generation.constraint import Constraints

GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 12}


def test_a_text_alone_and_in_pieces(openai_client: Any) -> None:
    whole = openai_client.completions.create(**GREEDY, prompt="the cat")
    choice = whole.choices[0]
    assert whole.object == "text_completion" and whole.model == "tiny" and whole.id.startswith("cmpl-")
    assert choice.text and choice.finish_reason == "length" and whole.usage.completion_tokens == 12
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 12
    pieces = list(openai_client.completions.create(**GREEDY, prompt="the cat", stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == choice.text and len(pieces) > 1
    assert [piece.choices[0].finish_reason for piece in pieces][-2:] == [None, "length"]
    assert len({piece.id for piece in pieces}) == 1 and all(piece.usage is None for piece in pieces)


def test_usage_in_a_stream(openai_client: Any) -> None:
    options = {"include_usage": True}
    *pieces, last = openai_client.completions.create(**GREEDY, prompt="the", stream=True, stream_options=options)
    assert last.choices == [] and last.usage.completion_tokens == 12 and pieces
    assert all(piece.usage is None for piece in pieces)


def test_prompts_of_every_kind(openai_client: Any, tokens: Any) -> None:
    ids = tokens("the cat")
    texts = []
    for prompt in ("the cat", ["the cat"], ids, [ids]):
        texts.append(openai_client.completions.create(**GREEDY, prompt=prompt).choices[0].text)
    assert len(set(texts)) == 1
    several = openai_client.completions.create(**GREEDY, prompt=["the cat", "on a mat"])
    assert [choice.index for choice in several.choices] == [0, 1]
    assert several.choices[0].text == texts[0] != several.choices[1].text
    assert several.usage.prompt_tokens == len(ids) + len(tokens("on a mat"))


def test_several_texts_by_a_seed(openai_client: Any) -> None:
    draw = {**GREEDY, "temperature": 1.0, "seed": 5, "n": 3, "prompt": "the"}
    one, other = (openai_client.completions.create(**draw) for _ in range(2))
    texts = [choice.text for choice in one.choices]
    assert texts == [choice.text for choice in other.choices] and len(set(texts)) == 3
    assert one.usage.completion_tokens <= 36
    streamed = ["", "", ""]
    for piece in openai_client.completions.create(**draw, stream=True):
        streamed[piece.choices[0].index] += piece.choices[0].text
    assert streamed == texts
    assert texts != [c.text for c in openai_client.completions.create(**{**draw, "seed": 6}).choices]


def test_echo(openai_client: Any) -> None:
    plain = openai_client.completions.create(**GREEDY, prompt="the cat").choices[0].text
    for stream in (False, True):
        answer = openai_client.completions.create(**GREEDY, prompt="the cat", echo=True, stream=stream)
        pieces = answer if stream else [answer]
        assert "".join(piece.choices[0].text for piece in pieces) == "the cat" + plain


def test_stops(openai_client: Any, tokens: Any) -> None:
    plain = openai_client.completions.create(**GREEDY, prompt="the cat").choices[0].text
    at = next(i for i in range(1, len(plain)) if plain[i] not in plain[:i] and plain[i] != "\N{REPLACEMENT CHARACTER}")
    stop = plain[at]
    for stream in (False, True):
        answer = openai_client.completions.create(**GREEDY, prompt="the cat", stop=["zzzz", stop], stream=stream)
        pieces = list(answer) if stream else [answer]
        assert "".join(piece.choices[0].text for piece in pieces) == plain[:at]
        assert pieces[-1].choices[0].finish_reason == "stop"


def test_logprobs(openai_client: Any) -> None:
    whole = openai_client.completions.create(**GREEDY, prompt="the cat", logprobs=2).choices[0].logprobs
    assert len(whole.tokens) == len(whole.token_logprobs) == len(whole.top_logprobs) == len(whole.text_offset) == 12
    assert all(value <= 0 for value in whole.token_logprobs) and whole.text_offset[0] == 0
    assert whole.token_logprobs[0] == max(whole.top_logprobs[0].values())  # greedy
    streamed = openai_client.completions.create(**GREEDY, prompt="the cat", logprobs=2, stream=True)
    parts = [piece.choices[0].logprobs for piece in streamed if piece.choices[0].logprobs]
    assert [token for part in parts for token in part.tokens] == whole.tokens
    assert [value for part in parts for value in part.token_logprobs] == whole.token_logprobs
    assert [offset for part in parts for offset in part.text_offset] == whole.text_offset


def test_without_max_tokens_a_text_ends_with_the_context(openai_client: Any) -> None:
    """The 16 tokens that nobody asked for are no reason to refuse a prompt."""
    length = next(iter(openai_client.models.list().data)).max_model_len
    answer = openai_client.completions.create(
        model="tiny", prompt=[5] * (length - 3), extra_body={"ignore_eos": True}, temperature=0
    )
    assert answer.usage.completion_tokens == 3 and answer.choices[0].finish_reason == "length"


def test_the_chosen_token_is_among_the_likeliest(openai_client: Any) -> None:
    """As OpenAI says: up to one more than were asked for."""
    drawn = {"model": "tiny", "prompt": "the", "max_tokens": 12, "temperature": 2, "seed": 1, "logprobs": 1}
    found = openai_client.completions.create(**drawn).choices[0].logprobs
    for token, value, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert top[token] == value and len(top) in (1, 2)
    assert any(len(top) == 2 for top in found.top_logprobs)


def test_biases_and_penalties_change_the_text(openai_client: Any, tokens: Any) -> None:
    (letter,) = tokens("a")
    biased = openai_client.completions.create(**GREEDY, prompt="the", logit_bias={str(letter): 100}).choices[0].text
    assert biased == "a" * 12
    penalty = {"logit_bias": {str(letter): 30}, "frequency_penalty": 2.0}
    assert (
        openai_client.completions.create(**{**GREEDY, "max_tokens": 60}, prompt="the", **penalty).choices[0].text
        != "a" * 60
    )


@pytest.mark.parametrize(
    ("extra", "check"),
    [
        ({"guided_choice": ["yes", "no"]}, lambda text: text in ("yes", "no")),
        ({"guided_regex": "[0-9]{3}"}, lambda text: len(text) == 3 and text.isdigit()),
        ({"guided_json": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                          "additionalProperties": False}},
         lambda text: type(json.loads(text)["a"]) is bool),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, 2]}}}},
         lambda text: json.loads(text) in (1, 2)),
    ],
)  # fmt: skip
def test_texts_of_a_form(openai_client: Any, extra: dict[str, Any], check: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    answer = openai_client.completions.create(**{**GREEDY, "max_tokens": 60}, prompt="the", extra_body=extra)
    assert check(answer.choices[0].text.strip()), answer.choices[0].text


def test_a_form_is_compiled_once_and_outside_of_the_event_loop(
    openai_client: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many texts have it, and however the request spells the name."""
    pytest.importorskip("llguidance", reason="the extra text is not installed")
    compile_form, on_loop = Constraints._compile, []

    def noted(self: Constraints, constraint: Any) -> Any:
        try:
            asyncio.get_running_loop()
            on_loop.append(True)
        except RuntimeError:
            on_loop.append(False)
        return compile_form(self, constraint)

    monkeypatch.setattr(Constraints, "_compile", noted)
    body = b'{"model": "tiny", "prompt": ["a", "b"], "n": 3, "seed": 1, "guided\\u005fregex": "[0-9]{3}"}'
    status, _, reply = client.ask("POST", "/v1/completions", body)
    assert status == 200 and on_loop == [False]
    texts = [choice["text"] for choice in json.loads(reply)["choices"]]
    assert len(texts) == 6 and len(set(texts)) > 1
    assert all(len(text) == 3 and text.isdigit() for text in texts)


def test_defaults_of_the_model(tmp_path: Path, connect: Any) -> None:
    """Those of generation_config.json, which may be null, and beyond what a request may ask for."""
    from tiny_decoder import write_decoder

    folder = write_decoder(tmp_path, temperature=3.0, top_k=1, min_p=None, top_p=None, repetition_penalty=None)
    request = {"model": "tiny", "prompt": "the", "max_tokens": 12}
    with Server([folder], options=ModelConfig(threads=1)) as running, connect(running) as client:
        replies = [
            client.ask("POST", "/v1/completions", json.dumps({**request, **more}).encode())
            for more in ({}, {"temperature": 0}, {"top_k": -1, "seed": 1})
        ]
    texts = [json.loads(reply)["choices"][0]["text"] for status, _, reply in replies if status == 200]
    assert len(texts) == 3, replies
    assert texts[0] == texts[1] != texts[2]


def test_extras_of_vllm(openai_client: Any) -> None:
    extras = {"top_k": 1, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True, "stop_token_ids": [5]}
    drawn = {"model": "tiny", "max_tokens": 5, "prompt": "the", "user": "me", "top_p": 0.9}
    assert openai_client.completions.create(**drawn, extra_body=extras).choices[0].text


def test_models(openai_client: Any, server: Server) -> None:
    (model,) = openai_client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("tiny", "model", "ox")
    assert openai_client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(Exception, match="there is no model 'nope'") as caught:
        openai_client.models.retrieve("nope")
    assert caught.value.status_code == 404 and caught.value.code == "model_not_found"
