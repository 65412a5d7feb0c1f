"""Slots, memory and turns: a text that loses its slot goes on as if nothing had been, and nothing is left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generation_client import CONTEXT, GREEDY, Answer, assert_nothing_is_left, prompts
from manual_clock import ManualClock

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.generation import SamplingParams
from ox.serve.generation.prefix_cache import BLOCK
from ox.serve.generation.request import GenerationRequest, TokenEvent


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(seed=5, presence_penalty=0.5)], ids=["greedy", "drawn"])
def test_resumed_after_preemption_is_undisturbed(client_of: Any, sampling: SamplingParams) -> None:
    """Four short texts fit into the cache, and two that are long."""
    small, large = client_of(texts=2), client_of()
    wanted, found = (
        [client.send(each, 150, sampling=sampling, index=i, ignore_eos=True) for i, each in enumerate(prompts(4))]
        for client in (large, small)
    )
    for one, other in zip(wanted, found, strict=True):
        assert one.wait().tokens == other.wait().tokens and len(one.tokens) == 150
    assert small.engine.stats()["preemptions"] > 0 and large.engine.stats()["preemptions"] == 0
    assert_nothing_is_left(small)


def test_slots_seldom_grow_with_texts_in_them(client_of: Any) -> None:
    """They are as large as the text may become, where half of the memory is left then."""
    sizes: dict[float, list[int]] = {}
    for texts in (2, 1.9):
        client = client_of(texts=texts)
        slots, found = client.engine._scheduler.slots, sizes.setdefault(texts, [])

        class Watched(Answer):
            def on_event(self, event: TokenEvent) -> None:
                found.append(slots.capacity)  # noqa: B023 - of this round
                super().on_event(event)

        answer = Watched()
        request = GenerationRequest([5, 6], GREEDY, max_tokens=200, ignore_eos=True)
        client.engine.submit(request, answer.on_event, answer.on_error)
        assert len(answer.wait().tokens) == 200
    assert sizes[2][0] == max(sizes[2]) == max(sizes[1.9]) == CONTEXT > sizes[1.9][0]


def test_too_little_memory_for_larger_slots(client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts that run get an error. No slot is left with keys of one size and values of another, and those that
    wait have their turn."""
    client = client_of(texts=1.9, max_texts=1)
    wanted = client.ask([5, 6], 200, ignore_eos=True).tokens
    slots, zeros, sizes = client.engine._scheduler.slots, np.zeros, list[int]()
    slots.resize(128, ())

    def scarce(shape: Any, *rest: Any, **named: Any) -> Any:
        if np.ndim(shape) and len(shape) == 4 and shape[2] == CONTEXT:
            sizes.append(shape[2])
            if len(sizes) == 2:
                raise MemoryError("no more")
        return zeros(shape, *rest, **named)

    monkeypatch.setattr(np, "zeros", scarce)
    with client.engine._condition:
        failing, after = (client.send([5, 6], 200, ignore_eos=True) for _ in range(2))
    assert "no more" in str(failing.wait().error)
    assert after.wait().tokens == wanted
    assert {array.shape[2] for array in slots.arrays} == {slots.capacity}
    assert_nothing_is_left(client)


def test_too_little_memory_for_a_text_that_is_cancelled(client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks cannot be kept; the engine goes on."""
    client = client_of()
    save, failures = client.engine._scheduler.prefixes.save, iter([True])

    def scarce(tokens: list[int], row: int) -> None:
        if len(tokens) > 20 and next(failures, False):
            raise MemoryError("no more")
        save(tokens, row)

    monkeypatch.setattr(client.engine._scheduler.prefixes, "save", scarce)

    class Leaving(Answer):
        def on_event(self, event: TokenEvent) -> None:
            super().on_event(event)
            if len(self.events) == 30:
                self.handle.cancel()

    answer = Leaving()
    with client.engine._condition:  # the handle is there before the first event
        request = GenerationRequest([5, 6], GREEDY, max_tokens=200, ignore_eos=True)
        answer.handle = client.engine.submit(request, answer.on_event, answer.on_error)
    answer.wait()
    assert len(client.ask([5, 6], 30, ignore_eos=True).tokens) == 30
    assert next(failures, "was raised") == "was raised"
    assert_nothing_is_left(client)


def test_a_higher_priority_takes_the_slot(client_of: Any) -> None:
    client = client_of(max_texts=1)
    whole = client.ask([5, 6], 60, ignore_eos=True).tokens
    urgent, ended_first = Answer(), []

    class Low(Answer):
        def on_event(self, event: TokenEvent) -> None:
            super().on_event(event)
            if len(self.events) == 5:
                request = GenerationRequest([7], GREEDY, max_tokens=5, ignore_eos=True, priority=1)
                client.engine.submit(request, urgent.on_event, urgent.on_error)
            elif len(self.events) == 20:
                ended_first.append(urgent.done.is_set())  # an assertion would be lost in the engine's thread

    low = Low()
    request = GenerationRequest([5, 6], GREEDY, max_tokens=60, ignore_eos=True, priority=9)
    client.engine.submit(request, low.on_event, low.on_error)
    assert low.wait().tokens == whole and len(urgent.wait().tokens) == 5 and ended_first == [True]
    assert client.engine.stats()["preemptions"] == 1


def test_equal_begins_are_computed_once(client_of: Any, alone: Any) -> None:
    client = client_of()
    prompt = (prompts(1, seed=1)[0] * 30)[: 5 * BLOCK + 3]
    first, again = client.ask(prompt), client.ask(prompt)
    longer = client.ask([*prompt, *first.tokens, 7, 8])
    assert first.events[-1].usage.cached_tokens == 0
    assert again.events[-1].usage.cached_tokens == 5 * BLOCK
    assert longer.events[-1].usage.cached_tokens == (len(prompt) + 19) // BLOCK * BLOCK  # the text, too
    assert again.tokens == first.tokens == alone("llama", prompt, 20)
    assert longer.tokens == alone("llama", [*prompt, *first.tokens, 7, 8], 20)
    other = client.ask([prompt[0] + 1, *prompt[1:]])
    assert other.events[-1].usage.cached_tokens == 0


def test_a_prompt_of_whole_blocks(client_of: Any, alone: Any) -> None:
    """The last token is computed even where all are known: its scores are needed."""
    client = client_of()
    prompt = (prompts(1, seed=2)[0] * 30)[: 2 * BLOCK]
    assert client.ask(prompt).tokens == client.ask(prompt).tokens == alone("llama", prompt, 20)


def test_blocks_stay_within_the_memory(client_of: Any) -> None:
    client = client_of(texts=1)
    for prompt in prompts(12, 100, seed=4):
        client.ask(prompt, 60, ignore_eos=True)
        stats = client.engine.stats()
        assert stats["blocks"] <= stats["most_blocks"] == CONTEXT // BLOCK
    assert_nothing_is_left(client)
    assert client.engine._scheduler.prefixes.blocks > 0


def test_nothing_is_left_of_texts_that_end_early(client_of: Any) -> None:
    client = client_of(max_texts=3)
    impossible = SamplingParams(temperature=0, logit_bias={token: float("-inf") for token in range(100)})
    running = [client.send(prompt, None, ignore_eos=True) for prompt in prompts(9)]
    failed = client.send([5], sampling=impossible, priority=1)
    late = client.send([5], None, ignore_eos=True, deadline=SYSTEM.now())
    for answer in running:
        answer.handle.cancel()
        answer.handle.cancel()
    for answer in running:
        end = answer.wait().events[-1]
        assert answer.error is None and end.usage.completion_tokens == len(answer.tokens)
        assert end.finish_reason in ("cancelled", "length") and (end.finish_reason == "length" or end.token is None)
    assert "no token can be chosen" in str(failed.wait().error) or "no scores" in str(failed.error)
    assert late.wait().error.status == 504
    client.ask([1], 1)
    assert_nothing_is_left(client)
    assert client.engine.stats()["ends"]["error"] == 2


def test_a_text_ends_at_its_deadline(client_of: Any) -> None:
    """Not a moment later: the engine would not wait until then, but look again and again."""
    clock = ManualClock()
    client = client_of(clock=clock)
    with client.engine._condition:  # it is paused before it begins
        answer = client.send([5], None, ignore_eos=True, deadline=clock.now() + 5)
        answer.handle.pause()
    clock.until_waiting()
    clock.advance(5)
    assert answer.wait().error.status == 504


@pytest.mark.parametrize("finish", [True, False])
def test_closing(client_of: Any, finish: bool) -> None:
    client = client_of(max_texts=2)
    answers = [client.send(prompt, 100, ignore_eos=True) for prompt in prompts(6)]
    client.engine.close(finish)
    for answer in answers:
        assert answer.done.is_set()
        assert (answer.error is None) == finish or answer.events[-1].finish_reason
        assert answer.error is None or answer.error.status == 503
    assert_nothing_is_left(client)
    with pytest.raises(Exception, match="unloaded"):
        client.send([1])
    client.engine.close()  # again


@pytest.mark.parametrize("waited", [0.0, 100.0])
def test_clients_take_turns(client_of: Any, waited: float) -> None:
    """One client has sent ten requests before another one sends its first, and they have waited already."""
    client = client_of(max_texts=1)
    order: list[str] = []

    class Named(Answer):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def on_event(self, event: TokenEvent) -> None:
            if event.finish_reason is not None:
                order.append(self.name)
            super().on_event(event)

    answers = [Named("many") for _ in range(10)] + [Named("one")]
    client.engine._condition.acquire()  # all are there before the first begins
    for answer in answers:
        request = GenerationRequest([5, 6, 7], GREEDY, max_tokens=5, client=answer.name, ignore_eos=True)
        client.engine.submit(request, answer.on_event, answer.on_error)
    for text in client.engine._incoming[:-1]:
        text.arrived, text.start_by = text.arrived - waited, text.start_by + waited
    client.engine._condition.release()
    for answer in answers:
        answer.wait()
    assert order.index("one") <= 1


def test_a_full_queue_has_room_for_the_first_requests_of_others(client_of: Any) -> None:
    client = client_of(max_texts=1, queue=8)
    answers: list[Answer] = []

    def accepted(name: str) -> int:
        """How many requests of a client are, before one is refused."""
        for count in range(100):
            answer = Answer()
            request = GenerationRequest([5, 6, 7], GREEDY, max_tokens=5, client=name, ignore_eos=True)
            try:
                client.engine.submit(request, answer.on_event, answer.on_error)
            except ServeError as error:
                assert (error.status, error.what) == (503, "the server is busy")
                return count
            answers.append(answer)
        return 100

    client.engine._condition.acquire()  # none begins meanwhile
    assert [accepted(name) for name in ("many", "one", "two", "many", "one")] == [8, 4, 2, 0, 0]
    assert (
        accepted("three") == 2 and [accepted(f"{number}") for number in range(9)] == [0] * 9
    )  # twice the queue is all
    client.engine._condition.release()
    for answer in answers:
        answer.wait()
    assert_nothing_is_left(client)
    assert len(client.engine._queue_limit) == 0
    assert accepted("many") >= 8


def test_low_priorities_do_not_starve(client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ox.serve.generation.waiting_texts.AGE_S", 1e-6)  # what waits at all is the most urgent
    client = client_of(max_texts=1)
    order: list[int] = []

    class Numbered(Answer):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def on_event(self, event: TokenEvent) -> None:
            if event.finish_reason is not None:
                order.append(self.number)
            super().on_event(event)

    answers = [Numbered(number) for number in range(6)]
    client.engine._condition.acquire()  # all are there before the first begins
    for answer in answers:
        priority = 9 if answer.number == 0 else 2
        request = GenerationRequest([5], GREEDY, max_tokens=3, priority=priority, ignore_eos=True)
        client.engine.submit(request, answer.on_event, answer.on_error)
    client.engine._condition.release()
    for answer in answers:
        answer.wait()
    assert order == [0, 1, 2, 3, 4, 5]
