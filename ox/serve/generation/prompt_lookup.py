"""Drafts of the next tokens from the text itself."""

from __future__ import annotations

from collections.abc import Sequence

NGRAM = 3  # tokens that have to be the same
MOST = 15  # tokens of a draft
PAUSE = 16  # tokens without a draft, after drafts that were wrong


class PromptLookup:
    """What followed, earlier in the text or its prompt, the tokens that it ends with (Saxena, "Prompt Lookup Decoding",
    2023). Drafts become longer while they are right, and shorter when they are not.

    Args:
        most: tokens of a draft.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._follows: dict[tuple[int, ...], int] = {}  # where the token after these is
        self._seen = NGRAM  # places before that are looked up
        self._length, self._pause = 2, 0

    def draft(self, tokens: Sequence[int], room: int) -> list[int]:
        """The tokens that may come next, at most `room`."""
        for place in range(self._seen, len(tokens)):
            self._follows[tuple(tokens[place - NGRAM : place])] = place
        self._seen = max(self._seen, len(tokens))
        if self._pause:
            self._pause -= 1
            return []
        start = self._follows.get(tuple(tokens[-NGRAM:]))
        if start is None:
            return []
        found = tokens[start:]  # at the end of the text it goes on with its own beginning: texts go round in circles
        return [found[i % len(found)] for i in range(min(self._length, room))]

    def count(self, drafted: int, accepted: int) -> None:
        """So many tokens of a draft were right."""
        if accepted == drafted:
            self._length = min(2 * self._length, self._most)
        else:
            self._length = max(accepted + 1, self._length // 2)
            if not accepted:
                self._length, self._pause = 1, PAUSE
