"""Which tokens a request allows to follow its text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ox.errors import ServeError
from ox.serve.generation.scores import Array

Bits = Array  # a bit for each token, the lowest first: uint32 [ceil(vocabulary / 32)]


class TokenMask:
    """Of one request.

    Args:
        vocab_size: how many tokens the model knows.
        ends: tokens that end the text.
        min_tokens: before so many tokens these are not allowed.
        allowed: only these tokens are; None for all.
        bad_words: sequences of tokens, the last of which is not allowed after the others.
    """

    def __init__(
        self,
        vocab_size: int,
        ends: Iterable[int],
        min_tokens: int,
        allowed: Sequence[int] | None,
        bad_words: Iterable[Sequence[int]],
    ) -> None:
        self._min_tokens, self._bad_words = min_tokens, [tuple(word) for word in bad_words]
        self._ends = _bits(vocab_size, list(ends))
        self._allowed = _bits(vocab_size, slice(vocab_size) if allowed is None else list(allowed))
        self._is_limited = allowed is not None

    def restricts(self, generated: int) -> bool:
        """Whether some tokens are not allowed after so many tokens of the text."""
        return self._is_limited or bool(self._bad_words) or generated < self._min_tokens

    def allowed(self, text: Sequence[int], by_constraint: Bits | None) -> Bits | None:
        """The tokens that can follow; None for all of them.

        Args:
            text: the tokens that have been generated.
            by_constraint: those that a constraint allows; None for all. Where these are only tokens that end the text,
                they are allowed before `min_tokens`, too.

        Raises:
            ServeError: no token can follow (400).
        """
        if not self.restricts(len(text)):
            return by_constraint
        bits = self._allowed if by_constraint is None else self._allowed & by_constraint
        forbidden = [word[-1] for word in self._bad_words if _ends_with(text, word[:-1])]
        if forbidden:
            bits = bits & ~_bits(32 * len(bits), forbidden)
        if not bits.any():
            limits = {
                "bad_words": bool(forbidden),
                "allowed_token_ids": self._is_limited,
                "the form of the text": by_constraint is not None,
            }
            names = " and ".join(name for name, limited in limits.items() if limited)
            raise ServeError("no token can follow", expected="one that the request allows", got=f"none, by {names}")
        if len(text) < self._min_tokens and (longer := bits & ~self._ends).any():
            bits = longer
        return bits


def is_allowed(bits: Bits, vocab_size: int) -> Array:
    """Of each token, whether its bit is set."""
    return np.unpackbits(bits.view(np.uint8), bitorder="little")[:vocab_size].astype(np.bool_)


def _ends_with(text: Sequence[int], end: tuple[int, ...]) -> bool:
    return len(text) >= len(end) and tuple(text[len(text) - len(end) :]) == end


def _bits(vocab_size: int, tokens: list[int] | slice) -> Bits:
    chosen = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    chosen[tokens] = 1
    return np.packbits(chosen, bitorder="little").view(np.uint32)
