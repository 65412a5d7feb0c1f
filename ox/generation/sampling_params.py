"""How the next token is chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ox.errors import ArgumentError


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen from scores; what each step does, in this order.

    Attributes:
        logit_bias: added to the scores of tokens, by id.
        repetition_penalty: scores of tokens that stand in the prompt or the text are divided by it if positive, and
            multiplied if negative (Keskar et al., *CTRL*, 2019). 1 changes nothing.
        presence_penalty: subtracted from the scores of tokens that stand in the text (not the prompt), once.
        frequency_penalty: the same, for each time that the token stands there.
        temperature: scores are divided by it. 0 is greedy: the highest score, of equal ones the token of the lowest id.
        top_k: only so many tokens of the highest scores are possible; 0 for all.
        top_p: only the likeliest tokens whose probabilities add up to it (Holtzman et al., *The Curious Case of Neural
            Text Degeneration*, 2020).
        min_p: only tokens of at least this part of the highest probability.
        seed: of the random numbers; None for others each time.

    Raises:
        ArgumentError: a number outside of its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.0, math.inf)
        _check("top_p", self.top_p, 0.0, 1.0)
        _check("min_p", self.min_p, 0.0, 1.0)
        _check("repetition_penalty", self.repetition_penalty, 0.0, math.inf, open_below=True)
        _check("presence_penalty", self.presence_penalty, -math.inf, math.inf)
        _check("frequency_penalty", self.frequency_penalty, -math.inf, math.inf)
        if not _is_whole(self.top_k) or self.top_k < 0:
            raise ArgumentError("top_k is a whole number from 0 on", got=repr(self.top_k))
        if self.seed is not None and not _is_whole(self.seed):
            raise ArgumentError("seed is a whole number", got=repr(self.seed))
        for token, bias in self.logit_bias.items():
            if not _is_whole(token) or token < 0 or not _is_number(bias) or math.isnan(bias):
                raise ArgumentError(
                    "logit_bias has numbers by the ids of tokens", expected="{42: -1.0}", got=f"{token!r}: {bias!r}"
                )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check(name: str, value: Any, low: float, high: float, open_below: bool = False) -> None:
    inside = _is_number(value) and low <= value <= high and math.isfinite(value) and not (open_below and value == low)
    if not inside:
        edge = "above" if open_below else "from"
        limits = f"{edge} {low:g}" if math.isfinite(low) else ""
        limits += f" to {high:g}" if math.isfinite(high) else " on" if limits and not open_below else ""
        raise ArgumentError(f"{name} is a number {limits}".rstrip(), got=repr(value))
