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
        if not count:
            return []
        if tokens is None:
            count = min(count, len(values))
            tokens = np.flatnonzero(values >= np.partition(values, -count)[-count])
            tokens = tokens[np.argsort(-values[tokens], kind="stable")]
            values = values[tokens]
        return [(int(token), float(value)) for token, value in zip(tokens[:count], values[:count], strict=True)]


def best_token(scores: Scores) -> int:
    """The token of the highest score, of equal ones the lowest."""
    return int(scores.tokens[0] if isinstance(scores, BestScores) else scores.argmax())
