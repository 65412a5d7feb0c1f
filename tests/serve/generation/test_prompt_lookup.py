"""Guessed tokens make a text that is alone faster, and change nothing in it."""

from __future__ import annotations

from typing import Any

import pytest
from generation_client import CONTEXT, GREEDY, Answer, assert_nothing_is_left, prompts

from ox.generation import SamplingParams
from ox.serve.generation.prompt_lookup import MOST, PAUSE, PromptLookup
from ox.serve.generation.request import Constraint, GenerationRequest, TokenEvent

PENALTIES = SamplingParams(temperature=0.02, seed=5, repetition_penalty=1.1, frequency_penalty=0.1)
ROUND = [7, 8, 9, 10, 11]


def test_what_followed_before() -> None:
    lookup = PromptLookup()
    assert lookup.draft([1, 2, 3, 4, 5, 1, 2], 9) == []
    assert lookup.draft([1, 2, 3, 4, 5, 1, 2, 3], 9) == [4, 5]
    assert lookup.draft([1, 2, 3, 4, 5, 1, 2, 3], 1) == [4]
    assert lookup.draft([1, 2, 3, 4, 5, 1, 2, 3, 6, 1, 2, 3], 9) == [6, 1]  # the last time counts


def test_drafts_grow_while_they_are_right() -> None:
    lookup, lengths = PromptLookup(), []
    for _ in range(5):
        lengths.append(len(draft := lookup.draft(ROUND * 8, 99)))
        lookup.count(len(draft), len(draft))
    assert lengths == [2, 4, 8, MOST, MOST]
    lookup.count(MOST, 2)
    assert len(lookup.draft(ROUND * 8, 99)) == MOST // 2
    lookup.count(MOST // 2, 0)
    assert [len(lookup.draft(ROUND * 8, 99)) for _ in range(PAUSE + 1)] == [0] * PAUSE + [1]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.02, seed=4), PENALTIES])
def test_texts_are_the_same(client_of: Any, name: str, sampling: SamplingParams) -> None:
    guessing, plain = client_of(name), client_of(name, draft_tokens=0)
    for index, prompt in enumerate(prompts(3)):
        named: Any = {"sampling": sampling, "index": index, "ignore_eos": True, "logprobs": 2}
        found, wanted = guessing.ask(prompt * 2, 150, **named), plain.ask(prompt * 2, 150, **named)
        assert found.tokens == wanted.tokens and found.text == wanted.text and len(found.tokens) == 150
        assert found.events[-1].usage == wanted.events[-1].usage
        for one, other in zip(found.events, wanted.events, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
    stats = guessing.engine.stats()
    assert stats["drafted_tokens"] >= max(1, stats["accepted_tokens"])
    assert sampling != GREEDY or stats["accepted_tokens"] > 100
    assert plain.engine.stats()["drafted_tokens"] == 0
    assert_nothing_is_left(guessing)


def test_ends_inside_of_a_draft(client_of: Any) -> None:
    guessing, plain = client_of(), client_of(draft_tokens=0)
    whole = plain.ask([5, 6], 120, ignore_eos=True)
    for place in range(60, 70):
        for named in ({"count": place}, {"stop": (whole.text[place : place + 9],)}):
            found, wanted = (
                client.ask([5, 6], **{"count": 120, "ignore_eos": True, **named}) for client in (guessing, plain)
            )
            assert (found.tokens, found.text) == (wanted.tokens, wanted.text)
            assert found.events[-1].finish_reason == wanted.events[-1].finish_reason
    prompt = ROUND * 48
    assert guessing.ask(prompt, None, ignore_eos=True).tokens == plain.ask(prompt, None, ignore_eos=True).tokens
    assert guessing.ask(prompt, None, ignore_eos=True).events[-1].usage.completion_tokens == CONTEXT - len(prompt)
    assert guessing.engine.stats()["accepted_tokens"] > 100
    assert_nothing_is_left(guessing)


def test_a_form_holds(client_of: Any) -> None:
    guessing, plain = client_of(), client_of(draft_tokens=0)
    form = Constraint("regex", "(abcde){4}[0-9]{20}(xy){20}")
    found, wanted = (client.ask([5], 200, constraint=form, ignore_eos=True) for client in (guessing, plain))
    assert found.text == wanted.text and "abcdeabcde" in found.text
    assert guessing.engine.stats()["accepted_tokens"] > 20


@pytest.mark.parametrize("place", [100, 103])
@pytest.mark.parametrize("how", ["pause", "cancel"])
def test_no_more_than_a_draft_comes_after_a_pause(client_of: Any, place: int, how: str) -> None:
    client = client_of(max_texts=1)
    whole = client.ask([5, 6], 150, ignore_eos=True).tokens

    class Leaving(Answer):
        def on_event(self, event: TokenEvent) -> None:
            super().on_event(event)
            if len(self.events) == place:
                getattr(self.handle, how)()

    answer = Leaving()
    with client.engine._condition:  # the handle is there before the first event
        request = GenerationRequest([5, 6], GREEDY, max_tokens=150, ignore_eos=True)
        answer.handle = client.engine.submit(request, answer.on_event, answer.on_error)
    if how == "pause":
        assert client.ask([7], 5).tokens  # it gets the only slot meanwhile
        assert place <= len(answer.events) <= place + MOST
        answer.handle.resume()
        assert answer.wait().tokens == whole
    else:
        tokens = answer.wait().tokens
        assert tokens == whole[: len(tokens)] and len(tokens) <= place + MOST
    assert client.engine.stats()["accepted_tokens"] > 50
    assert_nothing_is_left(client)


def test_several_texts_are_not_guessed(client_of: Any) -> None:
    client = client_of()
    with client.engine._condition:
        answers = [client.send(ROUND * 3, 40, index=index, ignore_eos=True) for index in range(3)]
    for answer in answers:
        assert answer.wait().error is None
    assert client.engine.stats()["drafted_tokens"] == 0
