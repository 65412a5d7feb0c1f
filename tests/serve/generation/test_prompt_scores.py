"""Log-probabilities of the tokens of a prompt are those of a run of the whole prompt, however it is read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generation_client import CONTEXT, GREEDY, Answer, assert_nothing_is_left, prompts

import ox
from ox.errors import ServeError
from ox.generation import OnnxDecoder, SamplingParams
from ox.generation.sampler import log_probabilities
from ox.serve.generation import decoder, prompt_scores
from ox.serve.generation.decoder_run import AppendedCacheRun, SharedCacheRun
from ox.serve.generation.prefix_cache import BLOCK
from ox.serve.generation.request import GenerationRequest
from ox.serve.generation.scores import PART, best_tokens

LONG = (prompts(1, seed=1)[0] * 30)[: 5 * BLOCK]
TOP = 3


def assert_scores(folder: Path, prompt: list[int], answer: Answer) -> None:
    """The first event has what the file says about the whole prompt, and no other event has any."""
    first, *others = answer.wait().events
    assert first.token is None and first.text == "" and first.finish_reason is first.usage is None
    assert all(event.prompt_logprobs is None for event in others)
    scores = OnnxDecoder(folder)(ox.tensor([prompt])).numpy()[0, :-1]
    found = first.prompt_logprobs
    assert found is not None and [each.token for each in found] == prompt[1:]
    for each, row in zip(found, log_probabilities(scores), strict=True):
        order = np.argsort(-row, kind="stable").tolist()
        assert each.logprob == pytest.approx(row[each.token], abs=1e-4)
        assert each.rank == 1 + order.index(each.token)
        assert [token for token, _ in each.top_logprobs] == order[:TOP]
        assert [value for _, value in each.top_logprobs] == pytest.approx(row[order[:TOP]], abs=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("options", [{}, {"max_texts": 3, "prefill_tokens": 7}], ids=["whole", "in parts"])
def test_they_are_those_of_the_whole_prompt(
    client_of: Any, alone: Any, folders: dict[str, Path], name: str, options: dict[str, int]
) -> None:
    """Beside texts that do not ask for them, and with what others have left in the cache."""
    client, cases = client_of(name, **options), [[5], LONG, [*LONG, 7], *prompts(6)]
    client.ask(LONG)
    with client.engine._condition:
        asked = [client.send(prompt, prompt_logprobs=TOP) for prompt in cases]
        plain = [client.send(prompt) for prompt in cases]
    for prompt, answer, other in zip(cases, asked, plain, strict=True):
        assert_scores(folders[name], prompt, answer)
        assert answer.tokens == other.wait().tokens == alone(name, prompt, 20)
        assert answer.events[-1].usage.cached_tokens == 0 and other.events[0].prompt_logprobs is None
    assert client.ask(LONG).events[-1].usage.cached_tokens > 0
    assert_nothing_is_left(client)


@pytest.mark.parametrize("form", ["scores of all tokens", "a cache that is copied", "token by token"])
def test_other_forms_of_a_decoder(
    client_of: Any, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    rewritings = [each for each in decoder.REWRITINGS if not each.choose_scores]
    monkeypatch.setattr(decoder, "REWRITINGS", rewritings if form == "scores of all tokens" else ())
    shutil.copytree(folders["llama"], tmp_path / "copy")
    client = client_of(tmp_path / "copy", prefill_tokens=30)
    run = client.engine._run
    if form == "token by token":
        run.singly = True
    assert isinstance(run, SharedCacheRun if form == "scores of all tokens" else AppendedCacheRun)
    assert_scores(folders["llama"], LONG, client.ask(LONG, 5, prompt_logprobs=TOP))


def test_few_rows_of_scores_are_held_at_once(
    client_of: Any, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_scores, "SCORE_BYTES", 11 * 100 * 4)
    client, parts = client_of(), list[int]()
    read = client.engine._run.read_scored
    client.engine._run.read_scored = lambda row, part, *more: parts.append(len(part)) or read(row, part, *more)
    assert_scores(folders["llama"], LONG, client.ask(LONG, prompt_logprobs=TOP))
    assert parts == [11] * 7 + [3]


def test_without_a_text(client_of: Any, folders: dict[str, Path]) -> None:
    """max_tokens = 0, also of a prompt that fills the context."""
    client = client_of(prefill_tokens=50)
    full = (LONG * 4)[:CONTEXT]
    for prompt in ([5], LONG, full):
        asked = client.ask(prompt, 0, prompt_logprobs=TOP)
        assert_scores(folders["llama"], prompt, asked)
        for answer, count in ((asked, 2), (client.ask(prompt, 0), 1)):
            end = answer.events[-1]
            assert answer.error is None and len(answer.events) == count
            assert (end.token, end.text, end.finish_reason) == (None, "", "length")
            assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (len(prompt), 0)
    stats = client.engine.stats()
    assert stats["prompt_tokens"] == 2 * (1 + len(LONG) + len(full)) and stats["completion_tokens"] == 0
    assert stats["ends"] == {"length": 6}
    with pytest.raises(ServeError, match="at most 256 tokens\\n  got      257 tokens"):
        client.send([*full, 1], 0)
    assert client.ask(LONG, 1).events[-1].usage.cached_tokens == len(LONG) - BLOCK
    assert_nothing_is_left(client)


def test_a_prompt_that_loses_its_slot(client_of: Any, folders: dict[str, Path]) -> None:
    """It goes on where it was: the scores that it has are not computed again, and all others are."""
    client, starts, urgent = client_of(max_texts=1, prefill_tokens=24), list[int](), list[Answer]()
    read = client.engine._run.read_scored

    def watched(row: int, part: Any, start: int) -> Any:
        starts.append(start)
        if start == 24:
            urgent.append(client.send([7], 3, priority=1, ignore_eos=True))
        return read(row, part, start)

    client.engine._run.read_scored = watched
    answer = client.ask(LONG, 3, prompt_logprobs=TOP, priority=5)
    assert_scores(folders["llama"], LONG, answer)
    assert len(urgent[0].wait().tokens) == 3 and client.engine.stats()["preemptions"] == 1
    assert starts == [0, 24, 3 * BLOCK, 3 * BLOCK + 24]
    assert answer.events[-1].usage.cached_tokens == 0


def test_a_client_that_leaves(client_of: Any, alone: Any) -> None:
    client = client_of(prefill_tokens=8)
    answer, read = Answer(), client.engine._run.read_scored

    def leaving(row: int, part: Any, start: int) -> Any:
        if start == 16:
            answer.handle.cancel()
        return read(row, part, start)

    client.engine._run.read_scored = leaving
    request = GenerationRequest(LONG, GREEDY, max_tokens=0, prompt_logprobs=0)
    with client.engine._condition:  # the handle is there before the first part
        answer.handle = client.engine.submit(request, answer.on_event, answer.on_error)
    assert [event.finish_reason for event in answer.wait().events] == ["cancelled"]
    assert client.ask(LONG, 5).tokens == alone("llama", LONG, 5)
    assert_nothing_is_left(client)


def test_drafts_follow(client_of: Any, folders: dict[str, Path]) -> None:
    """A text that is alone, and whose next tokens are drafted."""
    client, always = client_of(), SamplingParams(temperature=0, logit_bias={7: 1e9})
    answer = client.ask(LONG, 40, sampling=always, prompt_logprobs=TOP)
    assert_scores(folders["llama"], LONG, answer)
    assert answer.tokens == [7] * 40 and client.engine.stats()["accepted_tokens"] > 0


def test_a_model_without_scores(client_of: Any) -> None:
    """Those after one token are NaN, which harms no prompt without it."""
    client = client_of()
    read = client.engine._run.read_scored

    def broken(row: int, part: Any, start: int) -> Any:
        scores = read(row, part, start)
        scores[part == 9] = np.nan
        return scores

    client.engine._run.read_scored = broken
    bad, good = client.ask([5, 9, 6], prompt_logprobs=0), client.ask([5, 6], 5, prompt_logprobs=0)
    assert bad.error is not None and bad.error.status == 500 and "the model gives no scores" in str(bad.error)
    assert good.error is None and len(good.events) == 6
    assert_nothing_is_left(client)


def test_best_tokens() -> None:
    """Of equal scores those of the lowest ids, in vocabularies of any size."""
    random = np.random.default_rng(0)
    for size in (1, 5, PART, PART + 1, 3 * PART, 21 * PART - 1, 21 * PART, 100_000):
        for scores in (random.standard_normal(size), random.integers(0, 3, size).astype(np.float32)):
            order = np.argsort(-scores, kind="stable")
            for count in (0, 1, 5, 20, 21):
                assert best_tokens(scores, count).tolist() == order[:count].tolist()
