"""Scores of pairs of texts, which all routes of reranking share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ox.graph.contract import Array
from ox.serve.protocol.openai.text_pending import submit
from ox.serve.protocol.rest.routing import Context
from ox.serve.repository.model import Model
from ox.serve.runtime.instance import Feed
from ox.serve.text.pooling import normalized
from ox.serve.text.text_tensors import PAIR, TEXT, TextTensors
from ox.serve.transport.http import Exchange

Answer = Callable[[Array, int], object]  # from the scores and the number of tokens, what becomes JSON


class TextPairs(NamedTuple):
    """What is scored.

    Args:
        firsts: one for all of the second texts, or one for each.
        seconds: the second texts.
        truncate: leave out what is longer than the model's limit.
        raw: a cross-encoder's own scores, not their sigmoid.
    """

    firsts: Sequence[str]
    seconds: Sequence[str]
    truncate: bool = False
    raw: bool = False


def submit_pairs(
    context: Context, exchange: Exchange, model: Model, text: TextTensors, pairs: TextPairs, answer: Answer
) -> None:
    """Scores pairs, and replies with the answer. A cross-encoder reads both texts of a pair together; of an encoder,
    the score is the cosine of their vectors.

    Raises:
        ServeError: too many texts, or too much waits.
    """
    count, firsts = len(pairs.seconds), len(pairs.firsts)
    if text.kind == "cross-encoder":
        repeated = pairs.firsts if firsts == count else list(pairs.firsts) * count
        feed: Feed = {TEXT: _column(repeated), PAIR: _column(pairs.seconds)}
    else:
        feed = {TEXT: _column([*pairs.firsts, *pairs.seconds])}

    def answer_scores(values: Array, tokens: int) -> object:
        wide = values.astype(np.float64)
        if text.kind == "cross-encoder":
            scores = wide[:, 0] if pairs.raw else 1 / (1 + np.exp(-wide[:, 0]))
        else:
            unit = normalized(wide)
            scores = (unit[:firsts] * unit[firsts:]).sum(1)  # one first text is that of all
        return answer(scores, tokens)

    submit(context, exchange, model, feed, pairs.truncate, answer_scores)


def _column(texts: Sequence[str]) -> Array:
    column = np.empty((len(texts), 1), object)
    column[:, 0] = texts
    return column
