"""Logarithmic probabilities of the tokens of a prompt, which are collected while it is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ox.serve.generation.generation_errors import no_scores
from ox.serve.generation.request import TokenEvent, TokenLogprob
from ox.serve.generation.scores import Array, best_tokens

SCORE_BYTES = 32 << 20  # of float32 scores of all tokens, after each token that one run reads


def scored_tokens(vocab_size: int) -> int:
    """The most tokens of a prompt that are read at once where the scores after each of them are needed."""
    return max(1, SCORE_BYTES // (vocab_size * np.dtype(np.float32).itemsize))


class PromptScores:
    """Of one prompt.

    Args:
        prompt: its tokens.
        top: how many of the likeliest tokens are wanted at each position.
        vocab_size: how many tokens the model knows.

    Attributes:
        part: the most tokens of the prompt that are read at once.
    """

    def __init__(self, prompt: Sequence[int], top: int, vocab_size: int) -> None:
        self.part = scored_tokens(vocab_size)
        self._prompt, self._top = prompt, top
        self._found: list[TokenLogprob] = []  # of the tokens from the second on

    @property
    def reusable(self) -> Sequence[int]:
        """The tokens of which all but the last may come from a cache: the scores after them are known."""
        return self._prompt[: len(self._found) + 1]

    def add(self, start: int, scores: Array) -> None:
        """What follows tokens of the prompt.

        Args:
            start: the position of the first of these tokens.
            scores: after each of them, floating [tokens, vocabulary].

        Raises:
            ServeError: the model gives no scores (500).
        """
        known = len(self._found)
        rows = scores[known - start : len(self._prompt) - 1 - start]
        for token, scores_before in zip(self._prompt[known + 1 :], rows, strict=False):
            row = scores_before.astype(np.float32)  # one by one: all of them are too large for the processor's cache
            best = row.max()
            if not np.isfinite(best):
                raise no_scores()
            whole = best + np.log(np.exp(row - best).sum(dtype=np.float64))
            rank = 1 + int(np.count_nonzero(row > row[token]))
            likely = [(int(each), float(row[each] - whole)) for each in best_tokens(row, self._top)]
            self._found.append(TokenLogprob(token, float(row[token] - whole), rank, likely))

    def event(self) -> TokenEvent:
        """What the client gets when the whole prompt has been read."""
        return TokenEvent(None, prompt_logprobs=self._found)
