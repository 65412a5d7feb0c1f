"""How tokens are chosen, beside plain formulas."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox.errors import ArgumentError
from ox.generation import Sampler, SamplingParams
from ox.generation.sampler import _drawn

Array = np.ndarray[Any, Any]
LOGITS = np.log(np.array([0.4, 0.3, 0.15, 0.1, 0.05], np.float32))


@rows(
    ("params", "expected"),
    [
        ({}, [0.4, 0.3, 0.15, 0.1, 0.05]),
        ({"temperature": 0.5}, np.square([0.4, 0.3, 0.15, 0.1, 0.05]) / 0.285),
        ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0, 0]),
        ({"top_k": 9}, [0.4, 0.3, 0.15, 0.1, 0.05]),
        ({"top_p": 0.69}, [4 / 7, 3 / 7, 0, 0, 0]),
        ({"top_p": 0.71}, [4 / 8.5, 3 / 8.5, 1.5 / 8.5, 0, 0]),
        ({"top_p": 0.01}, [1, 0, 0, 0, 0]),
        ({"top_p": 0}, [1, 0, 0, 0, 0]),
        ({"min_p": 0.3}, [4 / 8.5, 3 / 8.5, 1.5 / 8.5, 0, 0]),
        ({"min_p": 1.0}, [1, 0, 0, 0, 0]),
        ({"top_k": 3, "top_p": 0.8}, [4 / 7, 3 / 7, 0, 0, 0]),  # top_p is of what top_k leaves: 0.47, 0.82
        ({"temperature": 0.0}, [1, 0, 0, 0, 0]),
        ({"logit_bias": {0: -100.0}}, [0, 0.5, 0.25, 1 / 6, 1 / 12]),
    ],
    ids=str,
)
def test_how_often_tokens_come(params: dict[str, Any], expected: Any) -> None:
    sampler = Sampler(SamplingParams(seed=3, **params))
    found = Counter(sampler._choose(sampler.adjusted(LOGITS)) for _ in range(4000))
    np.testing.assert_allclose([found[token] / 4000 for token in range(5)], expected, atol=0.03)
    assert all(found[token] == 0 for token in range(5) if np.asarray(expected)[token] == 0)


def test_penalties() -> None:
    logits = np.array([2.0, -1.0, 1.0, 0.5], np.float32)
    sampler = Sampler(SamplingParams(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5), [1, 1])
    np.testing.assert_array_equal(sampler.adjusted(logits), [2.0, -2.0, 1.0, 0.5])  # the prompt only repeats
    for token in (0, 0, 3):
        sampler.note(token)
    np.testing.assert_array_equal(sampler.adjusted(logits), [1.0 - 0.25 - 1.0, -2.0, 1.0, 0.25 - 0.25 - 0.5])
    np.testing.assert_array_equal(logits, [2.0, -1.0, 1.0, 0.5])


def test_equal_scores_give_the_lowest_id() -> None:
    assert Sampler(SamplingParams(temperature=0.0))(np.zeros(4, np.float32)) == 0
    assert Sampler(SamplingParams(top_k=1, seed=0))(np.array([0, 1, 1, 1], np.float32)) == 1


def test_seeds() -> None:
    logits = np.random.default_rng(0).normal(size=(30, 500)).astype(np.float32)

    def text(seed: int | None, index: int = 0) -> list[int]:
        sampler = Sampler(SamplingParams(seed=seed), index=index)
        return [sampler(row) for row in logits]

    assert text(1) == text(1) != text(2)
    assert text(1, 0) != text(1, 1)
    assert text(-1) == text(-1)
    assert text(None) != text(None)


@rows(("logits", "what"), [([0.0, np.nan], "NaN"), ([-np.inf, -np.inf], "-inf"), ([0.0, np.inf], "inf")])
@rows("temperature", [0.0, 1.0])
def test_scores_of_which_none_can_be_chosen(logits: list[float], what: str, temperature: float) -> None:
    with pytest.raises(ArgumentError, match="no token can be chosen") as caught:
        Sampler(SamplingParams(temperature=temperature))(np.array(logits, np.float32))
    assert what in str(caught.value.got)


@rows(
    ("params", "what"),
    [
        ({"temperature": -0.1}, "temperature is a number from 0 on"),
        ({"temperature": float("nan")}, "temperature is a number from 0 on"),
        ({"temperature": "hot"}, "temperature is a number from 0 on"),
        ({"temperature": True}, "temperature is a number from 0 on"),
        ({"top_p": -0.1}, "top_p is a number from 0 to 1"),
        ({"top_p": 1.1}, "top_p is a number from 0 to 1"),
        ({"min_p": -1}, "min_p is a number from 0 to 1"),
        ({"top_k": -1}, "top_k is a whole number from 0 on"),
        ({"top_k": 1.5}, "top_k is a whole number from 0 on"),
        ({"repetition_penalty": 0}, "repetition_penalty is a number above 0"),
        ({"presence_penalty": float("inf")}, "presence_penalty is a number"),
        ({"seed": 1.5}, "seed is a whole number"),
        ({"logit_bias": {"a": 1}}, "logit_bias has numbers"),
        ({"logit_bias": {1: float("nan")}}, "logit_bias has numbers"),
    ],
    ids=str,
)
def test_numbers_out_of_their_range(params: dict[str, Any], what: str) -> None:
    with pytest.raises(ArgumentError, match=what):
        SamplingParams(**params)


def test_a_bias_of_no_token() -> None:
    with pytest.raises(ArgumentError, match="logit_bias names a token that does not exist"):
        Sampler(SamplingParams(logit_bias={5: 1.0}))(LOGITS)


@pytest.mark.parametrize("count", [1, 5, 128, 129, 5000])
def test_a_token_is_drawn_by_the_sums_of_chances(count: int) -> None:
    """Against one sum over all tokens; a token without a chance is never drawn."""
    random = np.random.default_rng(count)
    for _ in range(50):
        chances = random.random(count).astype(np.float32) * (random.random(count) < 0.3)
        chances[random.integers(count)] = 1
        number = random.random()
        sums = np.cumsum(chances, dtype=np.float64)
        assert _drawn(chances, number) == np.searchsorted(sums, number * sums[-1], side="right")
    chances = np.zeros(count, np.float32)
    chances[0] = 1
    assert _drawn(chances, np.nextafter(1, 0)) == 0 == _drawn(chances, 0.0)


SHAPES = [{"top_p": 0.9}, {"min_p": 0.05}, {"top_p": 0.5, "min_p": 0.2}, {"top_k": 30, "top_p": 0.8}]
SHAPES += [{"top_k": 3000, "top_p": 0.6}, {"top_k": 9000, "top_p": 0.9, "min_p": 0.01}]  # all tokens or more


@rows("params", SHAPES)
@rows("spread", [0.1, 3.0])
def test_the_candidates_are_those_of_a_sort_of_all(params: dict[str, Any], spread: float) -> None:
    """What is left out before the sort is not among them."""
    scores = np.random.default_rng(1).normal(0, spread, 3000).astype(np.float32)
    scores[100:110] = scores[5]
    order = np.argsort(-scores, kind="stable")[: params.get("top_k")]
    chances = np.exp(scores[order].astype(np.float64) - scores.max())
    wanted = np.cumsum(chances) - chances < params.get("top_p", 1.0) * chances.sum()
    wanted &= chances >= params.get("min_p", 0.0)
    tokens, found = Sampler(SamplingParams(**params)).candidates(scores)
    assert abs(len(tokens) - wanted.sum()) <= 1  # the last one may fall to rounding
    count = min(len(tokens), wanted.sum())
    assert np.array_equal(tokens[:count], order[:count])
    assert np.allclose(found[:count], chances[:count], rtol=1e-5)


@rows("params", [{"temperature": 0.0}, {"top_k": 2}, {"top_k": 40}, {"top_k": 30, "top_p": 0.8, "min_p": 0.01}])
def test_from_the_best_scores_the_same_token_is_chosen_as_from_all(params: dict[str, Any]) -> None:
    """Also where scores are equal, in the order of their ids: 0 and -0, too."""
    scores = np.random.default_rng(1).normal(0, 1, (60, 3000)).round(1).astype(np.float32)
    scores[:30] = np.where(scores[:30] > 0, -0.0, scores[:30])
    scores[:30, ::3] += np.float32(0)  # of some
    samplers = [Sampler(SamplingParams(seed=3, **params)) for _ in range(2)]
    for row in scores:
        order = np.argsort(-row, kind="stable")[: max(1, params.get("top_k", 0)) + 5]
        assert samplers[0](row) == samplers[1].choose_of(order, row[order])
