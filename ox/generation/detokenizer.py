"""Tokens to text, one at a time."""

from __future__ import annotations

from typing import Any

UNFINISHED = "\ufffd"  # what a decoder writes for bytes that are no whole character
REST = 3  # the most tokens of a character that lacks one: it has at most four bytes, and a token at least one
MOST_HELD = 8


class Detokenizer:
    """What each further token adds to a text. A character may take several tokens, and a token's text may depend on
    those before it (spaces), so a few of them are decoded again.

    Args:
        tokenizer: has ``decode(ids)``.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []  # from the last whole character but one on
        self._shown = 0  # how many of these were given

    def add(self, token: int) -> str:
        """The text that this token completes; "" while a character is not whole."""
        self._ids.append(token)
        before, now, count = self._decoded(self._ids[: self._shown]), self._decoded(self._ids), len(self._ids)
        if now.endswith(UNFINISHED) and count - self._shown > MOST_HELD:  # no character comes of the first ones
            count -= REST
            now = self._decoded(self._ids[:count])
        elif now.endswith(UNFINISHED):
            return ""
        if len(now) <= len(before):  # special tokens, which have no text
            del self._ids[self._shown : max(self._shown, count - MOST_HELD)]
            return ""
        self._ids, self._shown = self._ids[self._shown :], count - self._shown
        return now[len(before) :]

    def rest(self) -> str:
        """The text of tokens that completed no character."""
        before, now = self._decoded(self._ids[: self._shown]), self._decoded(self._ids)
        self._shown = len(self._ids)
        return now[len(before) :]

    def _decoded(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids)) if ids else ""
