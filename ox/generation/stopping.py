"""Where a text ends: at tokens, or at strings that its tokens spell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ox.errors import ArgumentError
from ox.generation.detokenizer import Detokenizer


@dataclass(frozen=True)
class Stopping:
    """Tokens and strings that end a text, and the tokenizer that tells what tokens spell.

    Attributes:
        included: whether the token or string that ends a text is part of it.
    """

    tokens: frozenset[int]
    strings: tuple[str, ...]
    tokenizer: Any = None
    included: bool = False

    @classmethod
    def read(
        cls, tokens: int | Sequence[int] | None, strings: str | Sequence[str], tokenizer: Any, included: bool = False
    ) -> Stopping:
        """From what a user writes.

        Raises:
            ArgumentError: a token that is no whole number, an empty string, or strings without a tokenizer.
        """
        given = [] if tokens is None else [tokens] if isinstance(tokens, int) else list(tokens)
        if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in given):
            raise ArgumentError("tokens that end a text are whole numbers from 0 on", got=repr(tokens))
        texts = (strings,) if isinstance(strings, str) else tuple(strings)
        if not all(isinstance(text, str) and text for text in texts):
            raise ArgumentError("stop strings are texts of a character or more", got=repr(strings))
        if texts and tokenizer is None:
            raise ArgumentError("stop strings need a tokenizer", hint="generate(..., tokenizer=tokenizer)")
        return cls(frozenset(given), texts, tokenizer, included)

    def watch(self) -> Watcher:
        """For one text."""
        return Watcher(self)

    def text(self, tokens: Sequence[int]) -> str:
        """What tokens spell, up to the token or the first string that ends the text."""
        watcher = self.watch()
        parts = []
        for token in tokens:
            part, stopped = watcher.add(token)
            parts.append(part or "")
            if stopped:
                break
        else:
            parts.append(watcher.rest())
        return "".join(parts)


class Watcher:
    """Reads the tokens of a text as they come. What may be the begin of a stop string is held back.

    Attributes:
        stopped_by: the token or string that ended the text, None before.
    """

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self.stopped_by: int | str | None = None
        self._spelled = None if stopping.tokenizer is None else Detokenizer(stopping.tokenizer)
        self._held = ""

    def add(self, token: int, may_stop: bool = True) -> tuple[str | None, bool]:
        """The next token.

        Args:
            may_stop: whether a string that this token completes ends the text.

        Returns:
            what can be shown of the text that was not before (None without a tokenizer), and whether the text ends.
        """
        if token in self._stopping.tokens:
            self.stopped_by = token
            if self._spelled is not None and self._stopping.included:
                self._held += self._spelled.add(token)
            return (None if self._spelled is None else self.rest()), True
        if self._spelled is None:
            return None, False
        self._held += self._spelled.add(token)
        found = [(place, text) for text in self._stopping.strings if (place := self._held.find(text)) >= 0]
        if found and may_stop:
            place, self.stopped_by = min(found)
            end = place + len(self.stopped_by) * self._stopping.included
            shown, self._held = self._held[:end], ""
            return shown, True
        count = len(self._held) - self._waiting()
        shown, self._held = self._held[:count], self._held[count:]
        return shown, False

    def rest(self) -> str:
        """What was held back, where the text ends otherwise."""
        shown, self._held = self._held + ("" if self._spelled is None else self._spelled.rest()), ""
        return shown

    def _waiting(self) -> int:
        """How many of the last characters may be the begin of a stop string."""
        longest = max((len(string) for string in self._stopping.strings), default=1) - 1
        for count in range(min(longest, len(self._held)), 0, -1):
            if any(string.startswith(self._held[-count:]) for string in self._stopping.strings):
                return count
        return 0
