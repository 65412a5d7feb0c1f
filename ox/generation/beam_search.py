"""Beam search: the likeliest texts, by keeping the best few at each token."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core.operator import make_tensor
from ox.errors import ArgumentError
from ox.generation.sampler import Sampler, log_probabilities
from ox.generation.sampling_params import SamplingParams

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Beam:
    """A text that was found.

    Attributes:
        score: the sum of the log-probabilities by the number of tokens to the power of the length penalty.
        ended: whether a token ended it.
    """

    tokens: list[int]
    score: float
    ended: bool


@dataclass
class _Growing:
    tokens: list[int]
    total: float
    place: int  # in the batch of the model


def beam_search(
    model: Any,
    ids: Array,
    mask: Array | None,
    most: int,
    params: SamplingParams,
    beams: int,
    length_penalty: float,
    count: int,
    ends: Collection[int],
) -> list[Beam]:
    """The best `count` texts of each prompt, the best first.

    A prompt is finished when it has `beams` texts that ended, none of which a growing one can still surpass.

    Args:
        ids, mask: prompts int64 [batch, length], and where they are no padding.
        params: penalties and bias, which change the scores.
        ends: tokens that end a text.

    Raises:
        ArgumentError: `beams` is no whole number from 2 on, or below `count`.
    """
    if not isinstance(beams, int) or beams < 2 or count > beams:
        raise ArgumentError(
            "num_beams is a whole number from 1 on, and not below num_return_sequences", got=f"{beams!r} and {count}"
        )
    cache = model.new_cache(ids.shape[1] + most)
    with no_grad():
        scores = model(make_tensor(ids), cache=cache, attention_mask=mask)[:, -1].cpu().numpy()
    prompts = [row if mask is None else row[mask[i] != 0] for i, row in enumerate(ids)]
    growing = {i: [_Growing([], 0.0, i)] for i in range(len(ids))}
    ended: dict[int, list[Beam]] = {i: [] for i in growing}
    for number in range(1, most + 1):
        rows: list[int] = []
        for i, texts in list(growing.items()):
            kept: list[_Growing] = []
            for text, token, total in _candidates(texts, scores, prompts[i], params, beams):
                tokens = [*text.tokens, token]
                if token in ends:
                    ended[i].append(Beam(tokens, total / number**length_penalty, True))
                elif len(kept) < beams:
                    kept.append(_Growing(tokens, total, text.place))
            ended[i] = sorted(ended[i], key=lambda beam: -beam.score)[:beams]
            if number == most or not kept or _settled(ended[i], kept, number, most, beams, length_penalty):
                rest = [Beam(one.tokens, one.total / number**length_penalty, False) for one in kept]
                if number < most and len(ended[i]) >= beams:
                    rest = []
                ended[i] = sorted([*ended[i], *rest], key=lambda beam: -beam.score)
                del growing[i]
                continue
            growing[i] = kept
            for one in kept:
                rows.append(one.place)
                one.place = len(rows) - 1
        if not growing:
            break
        cache.select(rows)
        last = np.array([[one.tokens[-1]] for texts in growing.values() for one in texts])
        with no_grad():
            scores = model(make_tensor(last), cache=cache)[:, -1].cpu().numpy()
    return [beam for found in ended.values() for beam in found[:count]]


def _candidates(
    texts: list[_Growing], scores: Array, prompt: Array, params: SamplingParams, beams: int
) -> list[tuple[_Growing, int, float]]:
    """The best continuations by one token, twice as many as beams, so that enough are left if half of them end."""
    totals = []
    for text in texts:
        sampler = Sampler(params, prompt)
        for token in text.tokens:
            sampler.note(token)
        totals.append(text.total + log_probabilities(sampler.adjusted(scores[text.place])))
    table = np.stack(totals)
    order = np.argsort(-table, axis=None, kind="stable")[: 2 * beams]
    found = zip(*np.unravel_index(order, table.shape), strict=True)
    return [(texts[text], int(token), float(table[text, token])) for text, token in found]


def _settled(
    ended: list[Beam], growing: list[_Growing], number: int, most: int, beams: int, length_penalty: float
) -> bool:
    """Whether no growing text can surpass the worst of those that ended: its total only falls."""
    if len(ended) < beams:
        return False
    longest = most if length_penalty > 0 else number
    return bool(max(one.total for one in growing) / longest**length_penalty <= ended[-1].score)
