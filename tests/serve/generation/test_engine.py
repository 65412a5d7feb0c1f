"""The engine gives what the file gives for each request alone, however many there are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from generation_client import END, GREEDY, Answer, prompts

from ox.generation import SamplingParams
from ox.generation.sampler import log_probabilities
from ox.serve.generation.request import GenerationRequest, TokenEvent

DRAWN = SamplingParams(temperature=0.9, seed=7)
SHAPED = SamplingParams(temperature=0.7, top_k=20, top_p=0.9, min_p=0.01, frequency_penalty=0.3, seed=8)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("options", [{}, {"max_texts": 3, "prefill_tokens": 7}], ids=["together", "three at a time"])
def test_greedy_texts_are_those_of_the_file(client_of: Any, alone: Any, name: str, options: dict[str, int]) -> None:
    client = client_of(name, **options)
    answers = [client.send(prompt) for prompt in prompts(12)]
    for prompt, answer in zip(prompts(12), answers, strict=True):
        assert answer.wait().tokens == alone(name, prompt, 20)


@pytest.mark.parametrize("sampling", [DRAWN, SHAPED], ids=["drawn", "shaped"])
def test_drawn_texts_do_not_depend_on_others(client_of: Any, sampling: SamplingParams) -> None:
    together, single = client_of(), client_of(max_texts=1)
    answers = [together.send(prompt, sampling=sampling, index=i) for i, prompt in enumerate(prompts(8))]
    for i, (prompt, answer) in enumerate(zip(prompts(8), answers, strict=True)):
        assert answer.wait().tokens == single.ask(prompt, sampling=sampling, index=i).tokens
    assert len({tuple(single.ask([5], sampling=sampling, index=i).tokens) for i in range(4)}) > 1


def test_texts_join_and_leave_between_tokens(client_of: Any, alone: Any) -> None:
    client = client_of()
    late, gone = Answer(), []

    class First(Answer):
        def on_event(self, event: TokenEvent) -> None:
            super().on_event(event)
            if len(self.events) == 10:
                request = GenerationRequest([9, 8, 7], GREEDY, max_tokens=5)
                client.engine.submit(request, late.on_event, late.on_error)
            elif len(self.events) == 40:
                gone.append(late.done.is_set())  # an assertion would be lost in the engine's thread

    first = First()
    client.engine.submit(GenerationRequest([5], GREEDY, max_tokens=60, ignore_eos=True), first.on_event, first.on_error)
    first.wait()
    assert first.error is None and len(first.tokens) == 60
    assert gone == [True]  # it has come and gone while the first one ran
    assert late.tokens == alone("llama", [9, 8, 7], 5)


def test_streamed_text_is_the_whole_text(client_of: Any) -> None:
    client = client_of()
    for prompt in prompts(6):
        answer = client.ask(prompt, 30)
        assert answer.text == client.engine.tokenizer.decode(answer.tokens)


def test_where_a_text_ends(client_of: Any) -> None:
    client = client_of()
    whole = client.ask([5, 6], 30, ignore_eos=True)
    assert whole.events[-1].finish_reason == "length" and len(whole.tokens) == 30
    usage = whole.events[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (2, 30)
    assert all(event.usage is None for event in whole.events[:-1])

    stop = whole.text[8:11]
    cut = client.ask([5, 6], 30, ignore_eos=True, stop=(stop, "not there"))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert (cut.events[-1].finish_reason, cut.events[-1].stopped_by) == ("stop", stop)

    token = whole.tokens[12]
    cut = client.ask([5, 6], 30, ignore_eos=True, stop_token_ids=(token,))
    assert cut.tokens == whole.tokens[: whole.tokens.index(token) + 1]
    assert (cut.events[-1].finish_reason, cut.events[-1].stopped_by) == ("stop", token)

    always = SamplingParams(temperature=0, logit_bias={END: 1e9})
    cut = client.ask([5, 6], 30, sampling=always)
    assert cut.tokens == [END] and cut.events[-1].finish_reason == "stop" and cut.events[-1].stopped_by is None


def test_a_text_ends_with_the_context(client_of: Any, alone: Any) -> None:
    client = client_of("gpt2")
    prompt = prompts(1, seed=3)[0] * 10
    answer = client.ask(prompt[:250], None)
    assert len(answer.tokens) == 6 and answer.events[-1].finish_reason == "length"
    assert answer.tokens == alone("gpt2", prompt[:250], 6)


def test_log_probabilities(client_of: Any, folders: Any) -> None:
    from ox.generation import OnnxDecoder

    answer = client_of().ask([5, 6, 7], 4, logprobs=3)
    scores = OnnxDecoder(folders["llama"])(_tensor([5, 6, 7, *answer.tokens])).numpy()[0, 2:-1]
    for event, row in zip(answer.events, log_probabilities(scores), strict=True):
        assert event.logprob == pytest.approx(row[event.token], abs=1e-4)
        assert [token for token, _ in event.top_logprobs] == np.argsort(-row, kind="stable")[:3].tolist()
        assert event.top_logprobs[0][1] == pytest.approx(row.max(), abs=1e-4)
    assert client_of().ask([5], 2).events[0].logprob is None


def test_events_in_an_event_loop(client_of: Any) -> None:
    """Where there is a loop, they come there, and those of a turn in one wake-up."""
    client = client_of()

    async def work() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        calls: list[Any] = []
        wake: Callable[..., Any] = loop.call_soon_threadsafe

        def counted(*arguments: Any, **named: Any) -> Any:
            calls.append(arguments)
            return wake(*arguments, **named)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        ended = []

        def on_event(event: TokenEvent) -> None:
            assert asyncio.get_running_loop() is loop
            if event.finish_reason is not None:
                ended.append(event)
                if len(ended) == 8:
                    done.set()

        for prompt in prompts(8, 5):
            request = GenerationRequest(prompt, GREEDY, max_tokens=20, ignore_eos=True)
            client.engine.submit(request, on_event, pytest.fail, loop)
        await asyncio.wait_for(done.wait(), 60)
        assert len(calls) < 8 * 20 / 2

    asyncio.run(work())


def test_a_slow_reader_pauses_its_text(client_of: Any) -> None:
    client = client_of(max_texts=1)
    whole = client.ask([5, 6], 40, ignore_eos=True).tokens

    class Slow(Answer):
        def on_event(self, event: TokenEvent) -> None:
            super().on_event(event)
            if len(self.events) == 3:
                self.handle.pause()

    slow = Slow()
    client.engine._condition.acquire()  # the handle is there before the first event
    slow.handle = client.engine.submit(GenerationRequest([5, 6], GREEDY, max_tokens=40, ignore_eos=True), slow.on_event,
                                       slow.on_error)  # fmt: skip
    client.engine._condition.release()
    assert client.ask([7], 10).tokens  # it gets the only slot meanwhile
    assert len(slow.events) == 3
    slow.handle.resume()
    assert slow.wait().tokens == whole
    assert client.engine.stats()["preemptions"] == 1


def test_stats(client_of: Any) -> None:
    client = client_of()
    client.ask(list(range(20)), 5, ignore_eos=True)
    stats = client.engine.stats()
    assert (stats["requests"], stats["prompt_tokens"], stats["completion_tokens"]) == (1, 20, 5)
    assert sum(stats["times"]["first_token"]["counts"]) == 1 and sum(stats["times"]["between_tokens"]["counts"]) == 4
    assert stats["ends"] == {"length": 1} and stats["running"] == stats["waiting"] == 0 and stats["busy_s"] > 0


def _tensor(ids: list[int]) -> Any:
    import ox

    return ox.tensor([ids])


def test_a_process_that_has_all_the_threads_that_it_may_have(client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(queue=1)
    start, failures = threading.Thread.start, iter([True])

    def limited(thread: threading.Thread) -> None:
        if thread.name == "ox-generation" and next(failures, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(RuntimeError):
        client.send([5, 6])
    assert len(client.engine._queue_limit) == 0
    assert len(client.ask([5, 6], 5, ignore_eos=True).tokens) == 5
