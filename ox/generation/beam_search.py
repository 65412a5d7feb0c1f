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
        score: the sum of the log-probabilities, as penalties and bias change them, by the number of tokens to the power
            of the length penalty.
        ended: whether a token ended it, and not its length.
    """

    tokens: list[int]
    score: float
    ended: bool


@dataclass
class _Growing:
    tokens: list[int]
    total: float
    place: int  # in the batch of the model


class _Prompt:
    """The search for the texts of one prompt, as Hugging Face's `generate` does it (with its ``early_stopping=False``).

    Args:
        prompt: its ids.
        place: in the batch of the model.
        width: how many continuations are looked at, so that enough are left where many end.
    """

    def __init__(self, prompt: Array, place: int, beams: int, width: int, ends: Collection[int]) -> None:
        self._prompt, self._beams, self._width, self._ends = prompt, beams, width, ends
        self.growing = [_Growing([], 0.0, place)]
        self.ended: list[Beam] = []

    def grow(self, scores: Array, params: SamplingParams, length_penalty: float, last: bool) -> None:
        """A further token for each text.

        Args:
            scores: of the model's batch.
            last: whether texts end here.
        """
        length = len(self.growing[0].tokens) + 1
        growing = []
        for rank, (text, token, total) in enumerate(self._candidates(scores, params)):
            tokens = [*text.tokens, token]
            stopped = token in self._ends
            if not (stopped or last):
                growing.append(_Growing(tokens, total, text.place))
            elif rank < self._beams:  # an end that is less likely than all beams is no find
                self.ended.append(Beam(tokens, total / length**length_penalty, stopped))
        self.ended = sorted(self.ended, key=lambda beam: -beam.score)[: self._beams]
        self.growing = growing[: self._beams]
        best = max((text.total for text in self.growing), default=-np.inf) / length**length_penalty
        if len(self.ended) == self._beams and best <= self.ended[-1].score:
            self.growing = []

    def _candidates(self, scores: Array, params: SamplingParams) -> list[tuple[_Growing, int, float]]:
        """The best continuations by one token."""
        totals = []
        for text in self.growing:
            sampler = Sampler(params, self._prompt)
            for token in text.tokens:
                sampler.note(token)
            totals.append(text.total + sampler.adjusted(log_probabilities(scores[text.place])))
        table = np.stack(totals)
        order = np.argsort(-table, axis=None, kind="stable")[: self._width]
        found = zip(*np.unravel_index(order, table.shape), strict=True)
        return [(self.growing[text], int(token), float(table[text, token])) for text, token in found]


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

    A prompt is finished when it has `beams` texts that ended, and the best growing one, by its score so far, is not
    better than the worst of them.

    Args:
        ids, mask: prompts int64 [batch, length], and where they are no padding.
        params: penalties and bias, which change the log-probabilities.
        ends: tokens that end a text.

    Raises:
        ArgumentError: `beams` is no whole number from 2 on, or below `count`; the vocabulary has no `count` texts.
    """
    if not isinstance(beams, int) or beams < 2 or count > beams:
        raise ArgumentError(
            "num_beams is a whole number from 1 on, and not below num_return_sequences", got=f"{beams!r} and {count}"
        )
    cache = model.new_cache(ids.shape[1] + most)
    with no_grad():
        scores = model(make_tensor(ids), cache=cache, attention_mask=mask)[:, -1].cpu().numpy()
    width = max(2, 1 + len(ends)) * beams
    prompts = [_Prompt(row if mask is None else row[mask[i] != 0], i, beams, width, ends) for i, row in enumerate(ids)]
    for number in range(1, most + 1):
        for prompt in prompts:
            if prompt.growing:
                prompt.grow(scores, params, length_penalty, last=number == most)
        texts = [text for prompt in prompts for text in prompt.growing]
        if not texts:
            break
        cache.select([text.place for text in texts])
        for place, text in enumerate(texts):
            text.place = place
        with no_grad():
            last = make_tensor(np.array([[text.tokens[-1]] for text in texts]))
            scores = model(last, cache=cache)[:, -1].cpu().numpy()
    fewest = min(len(prompt.ended) for prompt in prompts)
    if fewest < count:
        raise ArgumentError("there are fewer texts of so many tokens", expected=f"{count} or more", got=str(fewest))
    return [beam for prompt in prompts for beam in prompt.ended[:count]]
