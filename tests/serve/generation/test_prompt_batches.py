"""Prompts that are read together give the texts that they give alone, and what several begin with is read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generation_client import GREEDY, Answer, Client, assert_nothing_is_left, prompts

from ox.generation import SamplingParams
from ox.serve.generation.prefix_cache import BLOCK
from ox.serve.generation.prompt_batches import RUN_TOKENS, batches
from ox.serve.generation.request import GenerationRequest


class Part:
    """As much of a text as the choice of runs looks at."""

    def __init__(self, length: int, computed: int = 0) -> None:
        self.tokens, self.computed, self.prompt_scores = [1] * length, computed, None


def runs_of(*texts: Part) -> list[list[int]]:
    parts = [(text, np.zeros(len(text.tokens) - text.computed, np.int64)) for text in texts]
    return [[len(part) for _, part in batch] for batch in batches(parts)]  # type: ignore[arg-type]


def test_begins_of_about_equal_length_share_a_run() -> None:
    assert runs_of(Part(9), Part(60), Part(8), Part(61), Part(8)) == [[8, 8, 9], [60, 61]]
    assert runs_of(Part(1), Part(1 + RUN_TOKENS)) == [[1, 1 + RUN_TOKENS]]
    assert runs_of(Part(1), Part(2 + RUN_TOKENS)) == [[1], [2 + RUN_TOKENS]]
    half = RUN_TOKENS // 2  # two rows are padded
    assert runs_of(Part(1), Part(1), Part(1 + half)) == [[1, 1, 1 + half]]
    assert runs_of(Part(1), Part(1), Part(2 + half)) == [[1, 1], [2 + half]]


def test_later_parts_are_read_alone() -> None:
    assert runs_of(Part(20, 10), Part(10), Part(20, 10), Part(10)) == [[10], [10], [10, 10]]


def at_once(client: Client, texts: list[list[int]], **named: Any) -> list[Answer]:
    """All of them wait before the first is read."""
    with client.engine._condition:
        return [client.send(prompt, index=index, **named) for index, prompt in enumerate(texts)]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("tokens", [256, 50], ids=["much at once", "little at once"])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.9, seed=3)], ids=["greedy", "drawn"])
def test_texts_read_together(client_of: Any, name: str, tokens: int, sampling: SamplingParams) -> None:
    client, single = client_of(name, prefill_tokens=tokens), client_of(name, max_texts=1)
    batch_sizes, begin = [], client.engine._run.begin
    client.engine._run.begin = lambda row, parts, *more: batch_sizes.append(len(parts)) or begin(row, parts, *more)
    texts = prompts(24, 60, seed=9)
    found = at_once(client, texts, sampling=sampling, ignore_eos=True)
    for index, (prompt, answer) in enumerate(zip(texts, found, strict=True)):
        wanted = single.ask(prompt, sampling=sampling, index=index, ignore_eos=True)
        assert answer.wait().tokens == wanted.tokens and len(answer.tokens) == 20
    assert max(batch_sizes) > 1
    assert_nothing_is_left(client)


def test_they_are_told_the_first_token_before_others_are_read(client_of: Any) -> None:
    client = client_of(prefill_tokens=32)
    order: list[int] = []

    class Ordered(Answer):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def on_event(self, event: Any) -> None:
            order.append(self.number)
            super().on_event(event)

    texts = [[number + 1] * 16 for number in range(6)]
    answers = [Ordered(number) for number in range(6)]
    with client.engine._condition:
        for prompt, answer in zip(texts, answers, strict=True):
            request = GenerationRequest(prompt, GREEDY, max_tokens=10, ignore_eos=True)
            client.engine.submit(request, answer.on_event, answer.on_error)
    for answer in answers:
        answer.wait()
    assert sorted(order[:4]) == [0, 0, 1, 1]  # two prompts are read in a turn, and then each text gets a token
    assert sorted(order[4:10]) == [0, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("tokens", [256, 20], ids=["whole", "in parts"])
def test_what_several_begin_with_is_read_once(client_of: Any, alone: Any, tokens: int) -> None:
    client = client_of(prefill_tokens=tokens)
    begin = (prompts(1, seed=1)[0] * 30)[: 3 * BLOCK]
    texts = [[*begin, 5], [*begin, 6, 7], [8, *begin], [*begin, 9, 10, 11]]
    answers = at_once(client, texts, count=10)
    for prompt, answer in zip(texts, answers, strict=True):
        assert answer.wait().tokens == alone("llama", prompt, 10)
    assert [answer.events[-1].usage.cached_tokens for answer in answers] == [0, 3 * BLOCK, 0, 3 * BLOCK]


def test_a_text_that_waits_for_its_begin_does_not_wait_for_good(client_of: Any, alone: Any) -> None:
    """The one that reads it is cancelled, or its client does not read."""
    client = client_of(prefill_tokens=1)
    begin = (prompts(1, seed=1)[0] * 30)[: 5 * BLOCK]
    first, second, third = at_once(client, [[*begin, 5], [*begin, 6], [*begin, 7]], count=5)
    first.handle.cancel()
    second.handle.pause()
    assert third.wait().tokens == alone("llama", [*begin, 7], 5)
    second.handle.resume()
    assert second.wait().tokens == alone("llama", [*begin, 6], 5)
    assert_nothing_is_left(client)


def test_an_urgent_prompt_is_read_before_the_rest_of_a_long_one(client_of: Any, alone: Any) -> None:
    client = client_of(prefill_tokens=16)
    long = (prompts(1, seed=1)[0] * 30)[:200]
    order: list[str] = []
    urgent: list[Answer] = []

    class Named(Answer):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def on_event(self, event: Any) -> None:
            order.append(self.name)
            super().on_event(event)

    def submit(name: str, prompt: list[int], priority: int) -> Named:
        answer = Named(name)
        request = GenerationRequest(prompt, GREEDY, max_tokens=3, ignore_eos=True, priority=priority)
        client.engine.submit(request, answer.on_event, answer.on_error)
        return answer

    read = client.engine._run.read

    def watched(row: int, tokens: Any, start: int, *more: Any) -> Any:
        if start == 48:  # a part of the long one
            urgent.append(submit("urgent", [5, 6, 7], 1))
        return read(row, tokens, start, *more)

    client.engine._run.read = watched
    usual = submit("usual", long, 5)
    assert usual.wait().tokens == alone("llama", long, 3)
    assert urgent[0].wait().tokens == alone("llama", [5, 6, 7], 3)
    assert order == ["urgent"] * 3 + ["usual"] * 3


def test_a_run_that_fails_ends_its_texts_alone(client_of: Any, alone: Any) -> None:
    client = client_of()
    begin = client.engine._run.begin

    def broken(row: int, parts: Any, *more: Any) -> Any:
        if len(parts) == 3:
            raise RuntimeError("no memory for three")
        return begin(row, parts, *more)

    client.engine._run.begin = broken
    bad = at_once(client, [[5] * 8, [6] * 8, [7] * 8], count=5)
    for answer in bad:
        assert "no memory for three" in str(answer.wait().error)
    good = at_once(client, [[5] * 8, [6] * 8], count=5)
    assert [answer.wait().tokens for answer in good] == [alone("llama", [token] * 8, 5) for token in (5, 6)]
    assert_nothing_is_left(client)
