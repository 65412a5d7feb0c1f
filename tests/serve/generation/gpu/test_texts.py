"""Texts from a decoder on a GPU are those of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generation_client import Answer, Client, prompts
from gpu_decoder import SAMPLED, assert_greedy_texts, assert_same_events
from serving_gpu import ServingGpu

from ox.serve import ModelConfig, Server
from ox.serve.generation.scores import Needs
from ox.serve.generation.token_mask import is_allowed

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.mark.parametrize("texts", [32, 3])
def test_texts_are_those_of_the_cpu(client_on: Callable[..., Client], cuda: ServingGpu, texts: int) -> None:
    """With three slots of context length, texts lose their slots, and their keys and values wait in blocks."""
    found = []
    for device in ("cpu", "cuda"):
        client = client_on(device, texts, draft_tokens=0)
        likely = {"logprobs": 5} if device == "cpu" else {}
        answers = [client.send(prompt, 40, ignore_eos=True, **likely) for prompt in prompts(9)]
        found.append([answer.wait() for answer in answers])
    assert_greedy_texts(found[1], found[0], cuda.tolerance(np.float16))
    assert all(len(answer.tokens) == 40 for answer in found[0])


def with_all_scores(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step whose best scores are looked up in all of them, which the same step gives before."""

    def both(tokens: Any, lengths: Any, needs: Needs | None = None) -> Any:
        whole = [np.array(row) for row in step(tokens, lengths)]
        rows = step(tokens, lengths, needs)
        for row, every, need in zip(rows, whole, needs or [], strict=False):
            if need is not None:
                if need.allowed is not None:
                    every[~is_allowed(need.allowed, len(every))] = -np.inf
                order = np.argsort(-every, kind="stable")[: need.best]
                np.testing.assert_array_equal(row.tokens, order)
                np.testing.assert_array_equal(row.scores, every[order])
        return rows

    return both


def test_texts_from_the_best_scores_are_those_from_all(client_on: Callable[..., Client], cuda: ServingGpu) -> None:
    """With drafts, too: the last text goes on alone."""
    found = []
    for device in ("cpu", "cuda"):
        client = client_on(device)
        if device == "cuda":
            client.engine._run.step = with_all_scores(client.engine._run.step)
        answers = [
            client.send(prompt, 20 + 3 * index, ignore_eos=True, **SAMPLED[index % len(SAMPLED)])
            for index, prompt in enumerate(prompts(2 * len(SAMPLED)))
        ]
        found.append([answer.wait() for answer in answers])
    assert_same_events(found[1], found[0], cuda.tolerance(np.float16), exact=1e-12)


@pytest.mark.parametrize("captures", [False, True])
def test_long_prompts_are_read_in_parts_between_tokens_of_others(
    client_on: Callable[..., Client], cuda: ServingGpu, captures: bool
) -> None:
    asked = ([5, 6, 7], 20), ([*range(60)], 5)
    expected = [client_on("cpu").ask(prompt, count, logprobs=5) for prompt, count in asked]
    client = client_on("cuda", 4, {"enable_cuda_graph": captures}, prefill_tokens=16, draft_tokens=0)
    run, calls, long = client.engine._run, list[str](), list[Answer]()
    read, step = run.read, run.step

    def noted(tokens: Any, *more: Any) -> Any:
        calls.append(f"{len(tokens)} tokens")
        if len(calls) == 3:
            long.append(client.send([*range(60)], 5))
        return step(tokens, *more)

    run.step = noted
    run.read = lambda row, part, *more: calls.append(f"reads {len(part)}") or read(row, part, *more)
    found = [client.ask([5, 6, 7], 20), long[0].wait()]
    assert_greedy_texts(found, expected, cuda.tolerance(np.float16))
    start = calls.index("reads 16")
    assert calls[start : start + 8] == [*["reads 16", "1 tokens"] * 3, "reads 12", "2 tokens"]


@pytest.mark.parametrize("captures", [False, True])
def test_scores_of_prompts(client_on: Callable[..., Client], cuda: ServingGpu, captures: bool) -> None:
    """In parts, beside texts that do not ask for them."""
    found = []
    for client in (client_on("cpu"), client_on("cuda", 4, {"enable_cuda_graph": captures}, prefill_tokens=16)):
        asked = [client.send(prompt, 0, prompt_logprobs=0) for prompt in prompts(4)]
        plain = [client.send(prompt, 5, ignore_eos=True) for prompt in prompts(4)]
        assert all(len(answer.wait().tokens) == 5 for answer in plain)
        found.append([[each.logprob for each in answer.wait().events[0].prompt_logprobs or ()] for answer in asked])
    for one, other, prompt in zip(*found, prompts(4), strict=True):
        assert len(one) == len(prompt) - 1
        assert other == pytest.approx(one, abs=max(1e-4, 4 * cuda.tolerance(np.float16)))


def test_a_server(file: Path) -> None:
    options = ModelConfig("cuda", generation={"cache_mib": 1}, threads=1)
    with Server([file.parent], port=0, options=options) as server:
        (model,) = server.models
        assert "generates texts on cuda:0" in model.describe()
