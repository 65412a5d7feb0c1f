"""Scores of the next token: of all tokens, or the best of them, where no others are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ox.generation.sampler import log_probabilities

Array: TypeAlias = np.ndarray[Any, Any]


class Need(NamedTuple):
    """What a row of scores is needed for, where not all of them are.

    Attributes:
        best: so many scores, the best ones; 0 for none.
        log_sum: also what makes log-probabilities of them.
        allowed: of which tokens, a bit for each, uint32 [ceil(vocabulary / 32)]; None for all. Only without `log_sum`.
    """

    best: int
    log_sum: bool = False
    allowed: Array | None = None


NOTHING, GREEDY = Need(0), Need(1)
Needs: TypeAlias = Sequence[Need | None]  # for each row; None for all scores


class BestScores(NamedTuple):
    """The best scores of a row.

    Attributes:
        tokens: int64 [k], that of the best score first, and of equal scores the lowest.
        scores: float32 [k].
        log_sum: of exp(score - best score) over all tokens; NaN where it was not asked for.
    """

    tokens: Array
    scores: Array
    log_sum: float


Scores: TypeAlias = Array | BestScores  # of one token
ScoreRows: TypeAlias = Array | Sequence[Scores]  # of several


class LogProbabilities:
    """Logarithmic probabilities of tokens.

    Args:
        scores: of all tokens [vocabulary]; or the best ones, and then only these tokens have one.
    """

    def __init__(self, scores: Scores) -> None:
        if isinstance(scores, BestScores):
            self._tokens: Array | None = scores.tokens
            best = scores.scores.astype(np.float64)
            self._values = best - best[:1] - scores.log_sum
        else:
            self._tokens, self._values = None, log_probabilities(scores)

    def of(self, token: int) -> float:
        """That of a token."""
        place = token if self._tokens is None else np.flatnonzero(self._tokens == token)[0]
        return float(self._values[place])

    def top(self, count: int) -> list[tuple[int, float]]:
        """The likeliest tokens, of equal ones that of the lowest id first."""
        values, tokens = self._values, self._tokens
        if tokens is None:
            tokens = best_tokens(values, count)
            values = values[tokens]
        return [(int(token), float(value)) for token, value in zip(tokens[:count], values[:count], strict=True)]


PART = 128  # scores


def best_tokens(scores: Array, count: int) -> Array:
    """So many tokens of the highest scores [vocabulary], the best first and of equal ones that of the lowest id."""
    count = min(count, len(scores))
    if not count:
        return np.zeros(0, np.int64)
    # Of parts of the scores, so many have a best score of at least this: all that is looked for is as high. To sort out
    # the parts takes a tenth of the time for a large vocabulary.
    parts = scores if len(scores) < count * PART else np.maximum.reduceat(scores, np.arange(0, len(scores), PART))
    tokens = np.flatnonzero(scores >= np.partition(parts, -count)[-count])
    return tokens[np.argsort(-scores[tokens], kind="stable")][:count]


def best_token(scores: Scores) -> int:
    """The token of the highest score, of equal ones the lowest."""
    return int(scores.tokens[0] if isinstance(scores, BestScores) else scores.argmax())
