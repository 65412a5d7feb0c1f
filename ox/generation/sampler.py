"""Chooses the tokens of one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.errors import ArgumentError
from ox.generation.sampling_params import SamplingParams

Array = np.ndarray[Any, Any]


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

    def _choose(self, scores: Array) -> int:
        best = int(scores.argmax())  # of NaN, where there is one
        if not np.isfinite(scores[best]):
            raise ArgumentError(
                "no token can be chosen",
                got="a score that is NaN" if np.isnan(scores[best]) else f"a highest score of {scores[best]}",
                hint="a model whose weights are finite, and a logit_bias that leaves a token",
            )
        if self.params.greedy:
            return best
        tokens, chances = self.candidates(scores)
        sums = np.cumsum(chances)
        place = int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))
        return int(tokens[min(place, len(tokens) - 1)])

    def candidates(self, scores: Array) -> tuple[Array, Array]:
        """The possible tokens, the likeliest first and of equal ones that of the lowest id, and their probabilities up
        to a common factor."""
        params = self.params
        tokens = np.arange(len(scores))
        if 0 < params.top_k < len(scores):
            least = np.partition(scores, -params.top_k)[-params.top_k]
            tokens = np.flatnonzero(scores >= least)
        ordered = params.top_k or params.top_p < 1 or params.min_p > 0
        if ordered:
            tokens = tokens[np.argsort(-scores[tokens], kind="stable")]
            tokens = tokens[: params.top_k or None]
        kept = scores[tokens].astype(np.float64)
        chances = np.exp((kept - kept.max()) / params.temperature)
        if params.top_p < 1:
            before = np.cumsum(chances) - chances
            count = int(np.count_nonzero(before < params.top_p * chances.sum()))
            tokens, chances = tokens[:count], chances[:count]
        if params.min_p > 0:
            count = int(np.count_nonzero(chances >= params.min_p * chances[0]))
            tokens, chances = tokens[:count], chances[:count]
        return tokens, chances


def log_probabilities(logits: Array) -> Array:
    """log softmax of scores, float64 [..., vocabulary]."""
    scores = logits.astype(np.float64)
    scores -= scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))  # type: ignore[no-any-return]


def _key(seed: int, index: int) -> Array:
    mask = (1 << 64) - 1
    return np.array([seed & mask, index], np.uint64)
