"""Chooses the tokens of one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.errors import ArgumentError
from ox.generation.sampling_params import SamplingParams

Array = np.ndarray[Any, Any]

COLDEST = 1e-30  # a temperature below it is no other one
PART = 128  # chances that are added up before the others


class Sampler:
    """Chooses the tokens of one text, and remembers them for the penalties. Its random numbers are its own: they do not
    depend on other texts of a batch.

    Args:
        prompt: the ids before the text.
        index: of several texts of one prompt and seed, which one.
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int] | Array = (), index: int = 0) -> None:
        self.params = params
        self._prompt = np.unique(np.asarray(prompt, np.int64))
        self._counts: dict[int, int] = {}
        # a generator whose state is small: there is one for each text
        self._random = np.random.Generator(np.random.Philox(None if params.seed is None else _key(params.seed, index)))

    def __call__(self, logits: Array) -> int:
        """The id of the next token.

        Args:
            logits: the scores of all tokens, floating [vocabulary].

        Raises:
            ArgumentError: a score is NaN, or none is above minus infinity.
        """
        token = self._choose(self.adjusted(logits))
        self.note(token)
        return token

    def choose_of(self, tokens: Array, scores: Array) -> int:
        """The id of the next token, where scores are taken as they are (no bias, no penalties): the same as from all.

        Args:
            tokens: int64 [k], those of the best scores: 1 or more if greedy, else `top_k`, which is below the number
                of all tokens, or more.
            scores: theirs, float32 [k], the best first and of equal ones that of the lowest id.

        Raises:
            ArgumentError: the best score is NaN or infinite.
        """
        token = int(tokens[self._choose(scores, sorted_best=True)])
        self.note(token)
        return token

    def note(self, token: int) -> None:
        """The text goes on with this token."""
        self._counts[token] = self._counts.get(token, 0) + 1

    def adjusted(self, logits: Array) -> Array:
        """The scores with bias and penalties, float32 [vocabulary]."""
        params = self.params
        scores = np.array(logits, np.float32)
        if params.logit_bias:
            for token, bias in params.logit_bias.items():
                if token >= len(scores):
                    raise ArgumentError(
                        "logit_bias names a token that does not exist",
                        expected=f"0 to {len(scores) - 1}",
                        got=str(token),
                    )
                scores[token] += np.float32(bias)
        if params.repetition_penalty != 1:
            seen = np.union1d(self._prompt, np.fromiter(self._counts, np.int64, len(self._counts)))
            mine = scores[seen]
            penalty = np.float32(params.repetition_penalty)
            scores[seen] = np.where(mine > 0, mine / penalty, mine * penalty)
        if self._counts and (params.presence_penalty or params.frequency_penalty):
            tokens = np.fromiter(self._counts, np.int64, len(self._counts))
            counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
            scores[tokens] -= np.float32(params.presence_penalty) + np.float32(params.frequency_penalty) * counts
        return scores

    def _choose(self, scores: Array, sorted_best: bool = False) -> int:
        """The place of a score."""
        best = int(scores.argmax())  # of NaN, where there is one
        if not np.isfinite(scores[best]):
            raise ArgumentError(
                "no token can be chosen",
                got="a score that is NaN" if np.isnan(scores[best]) else f"a highest score of {scores[best]}",
                hint="a model whose weights are finite, and a logit_bias that leaves a token",
            )
        if self.params.greedy:
            return best
        tokens, chances = self.candidates(scores, sorted_best)
        return int(tokens[_drawn(chances, self._random.random())])

    def candidates(self, scores: Array, sorted_best: bool = False) -> tuple[Array, Array]:
        """The possible tokens, the likeliest first and of equal ones that of the lowest id, and their probabilities up
        to a common factor.

        Args:
            scores: of all tokens; or, `sorted_best`, of `top_k` or more in this order, and tokens are places in it.
        """
        params = self.params
        tokens, selected = None, scores
        top_k = params.top_k if params.top_k < len(scores) or sorted_best else 0  # of all tokens, none is left out
        if sorted_best:
            tokens, selected = np.arange(top_k), scores[:top_k]
        elif top_k:
            least = np.partition(scores, -top_k)[-top_k]
            tokens = np.flatnonzero(scores >= least)
            selected = scores[tokens]
        # in float32, which is several times faster, and differs from float64 by less than scores of other batches do
        chances = np.exp((selected - selected.max()) / np.float32(max(params.temperature, COLDEST)))
        if not (top_k or params.top_p < 1 or params.min_p > 0):
            return np.arange(len(scores)), chances
        whole = float(chances.sum(dtype=np.float64))
        if tokens is None:
            # all tokens below this have less than 1 - top_p together: none of them can be needed, and none is sorted
            unneeded = (1 - params.top_p) * whole / len(chances) * (1 - 1e-3)
            tokens = np.flatnonzero(chances >= max(params.min_p, unneeded))
            selected, chances = scores[tokens], chances[tokens]
        order = _descending(selected)[: top_k or None]
        tokens, chances = tokens[order], chances[order]
        if params.top_p < 1:
            if top_k:
                whole = float(chances.sum(dtype=np.float64))  # without further tokens that score as the last one
            before = np.cumsum(chances, dtype=np.float64) - chances
            count = max(1, int(np.count_nonzero(before < params.top_p * whole)))  # with 0, the likeliest alone
            tokens, chances = tokens[:count], chances[:count]
        if params.min_p > 0:
            count = int(np.count_nonzero(chances >= params.min_p * chances[0]))
            tokens, chances = tokens[:count], chances[:count]
        return tokens, chances


def _drawn(chances: Array, number: float) -> int:
    """The place at which the sum of the chances up to it exceeds this part of them all. They are added up in parts
    first: a sum for each place takes longer than everything else about a token."""
    whole = len(chances) // PART * PART
    parts = chances[:whole].reshape(-1, PART).sum(1, dtype=np.float64)
    parts = np.append(parts, chances[whole:].sum(dtype=np.float64))
    sums = np.cumsum(parts)
    target = number * sums[-1]
    part = min(int(np.searchsorted(sums, target, side="right")), len(parts) - 1)
    start = part * PART
    inner = sums[part] - parts[part] + np.cumsum(chances[start : start + PART], dtype=np.float64)
    place = min(start + int(np.searchsorted(inner, target, side="right")), len(chances) - 1)
    while not chances[place]:  # rounding has led behind the last one that is possible
        place -= 1
    return place


def _descending(values: Array) -> Array:
    """The order of numbers, the largest first and of equal ones the earliest: by one sort of integers, as a
    stable sort of floats takes many times as long."""
    bits = (np.ascontiguousarray(values, np.float32) + np.float32(0)).view(np.uint32)  # -0 becomes 0, which equals it
    negative = bits >> 31 != 0
    bits = np.where(negative, bits, ~bits & 0x7FFFFFFF)  # as integers, these rise where the numbers fall
    keys = bits.astype(np.uint64) << np.uint64(32) | np.arange(len(values), dtype=np.uint64)
    keys.sort()
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


def log_probabilities(logits: Array) -> Array:
    """log softmax of scores, float64 [..., vocabulary]."""
    scores = logits.astype(np.float64)
    scores -= scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))  # type: ignore[no-any-return]


def _key(seed: int, index: int) -> Array:
    mask = (1 << 64) - 1
    return np.array([seed & mask, index], np.uint64)
