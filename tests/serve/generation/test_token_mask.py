"""Tokens that a request forbids, and where its text may end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from generation_client import END, GREEDY, VOCABULARY, Answer, assert_nothing_is_left, prompts

from ox.errors import ServeError
from ox.generation import SamplingParams
from ox.serve.generation import request_reader
from ox.serve.generation.handle import GenerationHandle
from ox.serve.generation.request import Constraint, GenerationRequest
from ox.serve.generation.token_mask import TokenMask, is_allowed

ENDING = SamplingParams(temperature=0, logit_bias={END: 1e9})
DRAWN = [
    SamplingParams(seed=4),
    SamplingParams(seed=4, top_k=9),
    SamplingParams(seed=4, repetition_penalty=1.2, logit_bias={END: 9.0}),
]


def letters(text: str) -> tuple[int, ...]:
    """The tokens of the test tokenizer."""
    return tuple(ord(letter) - 32 for letter in text)


def end_of(answer: Answer) -> tuple[Any, Any]:
    last = answer.wait().events[-1]
    return last.finish_reason, last.stopped_by


@pytest.mark.parametrize("sampling", [GREEDY, ENDING, *DRAWN], ids=repr)
@pytest.mark.parametrize("logprobs", [None, 2])
def test_a_text_has_at_least_so_many_tokens(client_of: Any, sampling: SamplingParams, logprobs: int | None) -> None:
    """Alone, where its tokens are drafted, and beside others."""
    stops, client = tuple(range(60)), client_of()
    named: Any = {"sampling": sampling, "stop_token_ids": stops, "min_tokens": 30, "logprobs": logprobs}
    alone = client.ask([5, 6], 60, **named)
    with client.engine._condition:
        together = [client.send(prompt, 60, **named) for prompt in ([5, 6], *prompts(3))]
    for answer in (alone, *together):
        tokens = answer.wait().tokens
        ends = [place for place, token in enumerate(tokens) if token in (*stops, END)]
        assert all(place >= 30 for place in ends)
        if ends:
            assert ends == [len(tokens) - 1] and answer.events[-1].finish_reason == "stop"
        else:
            assert len(tokens) == 60
    assert together[0].tokens == alone.tokens
    if sampling is ENDING:
        assert len(alone.tokens) == 31 and alone.tokens[-1] == END
    assert_nothing_is_left(client)


def test_drafts_do_not_end_a_text_early(client_of: Any) -> None:
    """The text repeats itself, so that drafts with the stop token reach beyond the limit."""
    client = client_of()
    loop = SamplingParams(temperature=0, logit_bias={7: 500.0, 8: 400.0}, frequency_penalty=0.0)
    whole = client.ask([7, 7], 60, sampling=loop, ignore_eos=True).tokens
    assert whole == [7] * 60
    answer = client.ask([7, 7, 8, 7, 7, 8], 60, sampling=loop, stop_token_ids=(7,), min_tokens=21)
    assert answer.tokens == [8] * 21 + [7] and end_of(answer) == ("stop", 7)
    assert client.engine.stats()["accepted_tokens"] > 0


def test_strings_do_not_end_a_text_early(client_of: Any) -> None:
    client = client_of()
    lower = letters("abcdefghijklmnopqrstuvwxyz")

    def ask(*stops: str, **named: Any) -> Answer:
        return client.ask([5, 6], 30, sampling=DRAWN[0], allowed_token_ids=lower, stop=stops, **named)

    whole = ask().text
    assert len(whole) == 30  # a character for each token
    early, across = whole[4:7], whole[9:13]
    assert whole.find(early) == 4 and whole.find(across) == 9
    assert ask(early).text == whole[:4]
    assert ask(early, min_tokens=7).text == ask(early, min_tokens=30).text == whole
    assert ask(early, min_tokens=6).text == whole[:4]
    assert ask(across, min_tokens=12).text == whole[:9]
    assert end_of(ask(across, min_tokens=12)) == ("stop", across)


def test_a_constraint_that_is_complete_ends_a_text(client_of: Any) -> None:
    pytest.importorskip("llguidance")
    client = client_of()
    chosen = client.ask([5], 40, min_tokens=30, constraint=Constraint("choice", ["abc", "xyz"]))
    assert chosen.text in ("abc", "xyz") and end_of(chosen) == ("stop", None)
    for sampling in (ENDING, *DRAWN):
        open_ended = client.ask([5], 40, min_tokens=30, sampling=sampling, constraint=Constraint("regex", "[a-c]+"))
        assert len(open_ended.text) >= 30 and set(open_ended.text) <= set("abc")
    limited = Constraint("regex", "[a-c]{2,4}")
    assert len(client.ask([5], 40, min_tokens=30, sampling=ENDING, constraint=limited).text) == 4


@pytest.mark.parametrize("sampling", [GREEDY, *DRAWN], ids=repr)
def test_allowed_tokens(client_of: Any, sampling: SamplingParams) -> None:
    client, allowed = client_of(), letters("abcdef")
    free = client.send([5, 6], 40, sampling=sampling, ignore_eos=True)
    held = client.send([5, 6], 40, sampling=sampling, allowed_token_ids=allowed)
    assert set(held.wait().tokens) <= set(allowed) and len(held.tokens) == 40
    assert not set(free.wait().tokens) <= set(allowed)
    ending = client.ask([5, 6], 40, sampling=sampling, allowed_token_ids=(END,), min_tokens=3)
    assert ending.tokens == [END]  # nothing else is left


@pytest.mark.parametrize("sampling", [GREEDY, *DRAWN], ids=repr)
def test_bad_words(client_of: Any, sampling: SamplingParams) -> None:
    """Of the pairs of letters that a text has, two are forbidden, and a letter."""
    client, named = client_of(), {"sampling": sampling, "allowed_token_ids": letters("abcd")}
    free = client.ask([5, 6], 80, **named).text
    words = [pair for pair in map("".join, pairwise(free)) if "c" not in pair][:2]
    answer = client.ask([5, 6], 80, bad_words=(*words, "c"), **named)
    assert len(answer.text) == 80 and set(answer.text) <= set("abd")
    assert not any(word in answer.text for word in words)


def test_texts_of_a_request_share_what_is_forbidden(client_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(request_reader, "TokenMask", lambda size, *more: made.append(size) or TokenMask(size, *more))
    client = client_of()
    for index in range(3):
        client.send([5], 2, bad_words=("ab",), allowed_token_ids=letters("abc"), index=index).wait()
    assert len(made) == 1
    client.ask([5], 2, bad_words=("ab",), allowed_token_ids=letters("ab"))
    assert len(made) == 2


def test_no_token_is_left(client_of: Any) -> None:
    client = client_of()
    nothing = client.send([5], bad_words=("a",), allowed_token_ids=letters("a"))
    assert nothing.wait().error is not None and nothing.error.status == 400
    assert (
        "no token can follow; expected one that the request allows; got none, by bad_words and allowed_token_ids"
        in nothing.error.one_line()
    )
    assert client.ask([5], 3).error is None
    with pytest.raises(ServeError, match=r"allowed_token_ids has a token that the model does not have"):
        client.send([5], allowed_token_ids=(100,))
    with pytest.raises(ServeError, match="bad_words need a tokenizer"):
        client_of("gpt2").send([5], bad_words=("a",))
    assert_nothing_is_left(client)


def test_what_of_the_end_is_shown(client_of: Any) -> None:
    client = client_of()
    whole = client.ask([5, 6], 30, ignore_eos=True).text
    stop = whole[8:11]
    end = whole.index(stop)
    for included, text in ((False, whole[:end]), (True, whole[: end + 3])):
        found = client.ask([5, 6], 30, ignore_eos=True, stop=(stop,), include_stop=included)
        assert found.text == text and end_of(found) == ("stop", stop)
    stops = letters(whole[12])
    for included, text in ((False, ""), (True, whole[12])):
        found = client.ask([5, 6], 30, ignore_eos=True, stop_token_ids=stops, include_stop=included)
        assert found.text == whole[: whole.index(whole[12])] + text and end_of(found) == ("stop", stops[0])
    for included, skipped, text in ((False, False, ""), (True, True, ""), (True, False, "<end>")):
        named: Any = {"sampling": ENDING, "include_stop": included, "skip_special_tokens": skipped}
        assert client.ask([5, 6], 30, **named).text == text


def test_special_tokens_are_shown(client_of: Any) -> None:
    """With the text around them, as the tokenizer writes all tokens."""
    client = client_of()
    sampling = SamplingParams(seed=1, logit_bias={END: 4.5})
    named: Any = {"sampling": sampling, "ignore_eos": True}
    hidden, shown = (client.ask([5, 6], 60, skip_special_tokens=skipped, **named) for skipped in (True, False))
    assert shown.tokens == hidden.tokens and 3 < shown.tokens.count(END) < 60
    assert shown.text == client.engine.tokenizer.decode(shown.tokens, special=True)
    assert shown.text.count("<end>") == shown.tokens.count(END) and "<end>" not in hidden.text
    stopped = client.ask([5, 6], 60, skip_special_tokens=False, stop=("d>",), **named)
    assert stopped.text == shown.text[: shown.text.index("d>")]


def test_what_is_needed_of_the_scores_of_a_draft(client_of: Any) -> None:
    """On a GPU, where the best of the allowed tokens are chosen for all tokens of a draft at once."""
    a, b, stop = letters("ab!")
    request = GenerationRequest([5], GREEDY, min_tokens=2, stop_token_ids=(stop,), bad_words=("ab",))
    answer = Answer()
    handle = GenerationHandle(lambda: None)
    text = client_of().engine._reader.read(request, handle, answer.on_event, answer.on_error, None, 0.0)
    forbidden = []
    for need in text.needs(VOCABULARY, [a, a, 9]):
        allowed = np.ones(VOCABULARY) if need.allowed is None else is_allowed(need.allowed, VOCABULARY)
        forbidden.append(set(np.flatnonzero(allowed == 0).tolist()))
    assert forbidden == [{stop, END}, {stop, END, b}, {b}, set()]


def test_bits_of_tokens() -> None:
    """Of vocabularies that fill no whole word."""
    for size in (1, 31, 32, 33, 100):
        mask = TokenMask(size, [size - 1], 2, None, [(0,)] if size > 2 else [])
        bits = mask.allowed([], None)
        assert bits is not None and bits.dtype == np.uint32 and len(bits) == -(-size // 32)
        found = np.flatnonzero(is_allowed(bits, size)).tolist()
        assert found == ([0] if size == 1 else list(range(1, size - 1)))


def test_a_reader_that_fails_ends_its_own_text_alone(client_of: Any) -> None:
    def read(text: str) -> bool:
        raise ValueError("no text of mine")

    client = client_of()
    with client.engine._condition:
        failing, other = client.send([5, 6], 30, end_of_text=read), client.send([5, 6], 30, ignore_eos=True)
    error = failing.wait().error
    assert error is not None and error.one_line() == "the text could not be read; got no text of mine"
    assert len(other.wait().tokens) == 30
    assert_nothing_is_left(client)
