"""Many clients that come, stop reading, leave and come back, on a cache that is too small for them."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from generation_client import GREEDY, Answer, assert_nothing_is_left, prompts

from ox.clock import SYSTEM
from ox.generation import SamplingParams
from ox.serve.generation.request import GenerationRequest, TokenEvent

CLIENTS, REQUESTS = 40, 6


class Restless(Answer):
    """Leaves after so many tokens, and stops reading now and then."""

    def __init__(self, leaves: int | None, pauses: bool) -> None:
        super().__init__()
        self.leaves, self.pauses = leaves, pauses

    def on_event(self, event: TokenEvent) -> None:
        super().on_event(event)
        if self.handle is None or event.finish_reason is not None:
            return
        if len(self.events) == self.leaves:
            self.handle.cancel()
        elif self.pauses and len(self.events) % 20 == 0:
            self.handle.pause()
            threading.Timer(0.01, self.handle.resume).start()


@pytest.mark.slow
def test_every_text_ends_right(client_of: Any) -> None:
    small, large = client_of(texts=3, max_texts=12, prefill_tokens=20), client_of()
    begins = prompts(6, 60)
    kinds = [GREEDY, SamplingParams(seed=1), SamplingParams(seed=2, top_p=0.9, repetition_penalty=1.2)]
    wanted = {
        (prompt, kind): large.ask(begins[prompt], 80, sampling=kinds[kind], ignore_eos=True).tokens
        for prompt in range(len(begins))
        for kind in range(len(kinds))
    }
    wrong: list[Any] = []

    def client(number: int) -> None:
        chance = random.Random(number)
        for _ in range(REQUESTS):
            prompt, kind = chance.randrange(len(begins)), chance.randrange(len(kinds))
            leaves, pauses = chance.choice([None, None, chance.randrange(80)]), chance.random() < 0.3

            answer = Restless(leaves, pauses)
            request = GenerationRequest(
                begins[prompt], kinds[kind], max_tokens=80, ignore_eos=True, client=str(number % 5),
                priority=chance.randrange(10), deadline=SYSTEM.now() + 300,
                prompt_logprobs=chance.choice([None, None, 2]), min_tokens=chance.choice([0, 30]),
            )  # fmt: skip
            answer.handle = small.engine.submit(request, answer.on_event, answer.on_error)
            if not answer.done.wait(300) or answer.error is not None:
                wrong.append(answer.error or "no end")
                return
            whole = wanted[prompt, kind]
            scored = [event.prompt_logprobs for event in answer.events if event.prompt_logprobs is not None]
            if any([each.token for each in found] != begins[prompt][1:] for found in scored) or len(scored) > 1:
                wrong.append(scored)
            if request.prompt_logprobs is not None and answer.tokens and not scored:
                wrong.append("a text without the log-probabilities of its prompt")
            if answer.tokens != whole[: len(answer.tokens)]:
                wrong.append((prompt, kind, answer.tokens, whole))
            if answer.events[-1].finish_reason == "length" and len(answer.tokens) != 80:
                wrong.append(len(answer.tokens))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(400)
    assert not wrong, wrong[:2]
    stats = small.engine.stats()
    assert stats["preemptions"] > 0
    assert set(stats["ends"]) <= {"length", "cancelled"} and sum(stats["ends"].values()) == CLIENTS * REQUESTS
    assert stats["blocks"] <= stats["most_blocks"]
    small.ask([1], 1)
    assert_nothing_is_left(small)
