"""The next tokens of all texts of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ox.errors import OxError, ServeError
from ox.serve.generation.generation_errors import no_scores
from ox.serve.generation.request import TokenEvent
from ox.serve.generation.scores import BestScores, ScoreRows, Scores, best_token
from ox.serve.generation.text import Text


def next_events(texts: Sequence[Text], scores: ScoreRows) -> list[TokenEvent | OxError]:
    """Chooses a token for each text, which is added to it.

    Args:
        scores: of each text, best ones only where it needs no others (`Text.need`); are changed.

    Returns:
        for each text the event, or what is wrong with it: the others are not affected.
    """
    logprobs = [text.logprobs(row) for text, row in zip(texts, scores, strict=True)]
    outcomes: list[TokenEvent | OxError] = []
    failed: dict[int, OxError] = {}
    for place, (text, row) in enumerate(zip(texts, scores, strict=True)):
        if text.is_restricted and not isinstance(row, BestScores):
            try:
                text.forbid(row)
            except ServeError as error:
                failed[place] = error
    best = [best_token(row) for row in scores]  # of NaN, where there is one
    finite = np.isfinite([_best_score(row, token) for row, token in zip(scores, best, strict=True)])
    for place, (text, token) in enumerate(zip(texts, best, strict=True)):
        try:
            if place in failed:
                raise failed[place]
            if not finite[place]:
                raise no_scores()
            if not (text.plain and text.request.sampling.greedy):
                token = text.choose(scores[place])
            outcomes.append(text.add(token, logprobs[place]))
        except OxError as error:
            outcomes.append(error)
    return outcomes


def _best_score(scores: Scores, token: int) -> float:
    return float(scores.scores[0] if isinstance(scores, BestScores) else scores[token])
