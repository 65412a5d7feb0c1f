"""The next tokens of all texts of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ox.errors import OxError, ServeError
from ox.serve.generation.cache_slots import Array
from ox.serve.generation.request import TokenEvent
from ox.serve.generation.text import Text


def next_events(texts: Sequence[Text], scores: Array) -> list[TokenEvent | OxError]:
    """Chooses a token for each text, which is added to it.

    Args:
        scores: [texts, vocabulary]; is changed.

    Returns:
        for each text the event, or what is wrong with it: the others are not affected.
    """
    logprobs = [text.logprobs(row) for text, row in zip(texts, scores, strict=True)]
    outcomes: list[TokenEvent | OxError] = []
    failed: dict[int, OxError] = {}
    for place, text in enumerate(texts):
        if text.matcher is not None:
            try:
                text.matcher.forbid(scores[place])
            except ServeError as error:
                failed[place] = error
    best = scores.argmax(1)  # of NaN, where there is one
    finite = np.isfinite(scores[np.arange(len(texts)), best]).tolist()
    for place, (text, token) in enumerate(zip(texts, best.tolist(), strict=True)):
        try:
            if place in failed:
                raise failed[place]
            if not finite[place]:
                raise ServeError(
                    "the model gives no scores", status=500, expected="finite numbers", got="NaN or infinity",
                    hint="weights that are finite",
                )  # fmt: skip
            if not (text.plain and text.request.sampling.greedy):
                token = text.sampler(scores[place])
            outcomes.append(text.add(token, logprobs[place]))
        except OxError as error:
            outcomes.append(error)
    return outcomes
