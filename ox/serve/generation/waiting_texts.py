"""Texts that wait for a slot, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from ox.serve.generation.text import Text

AGE_S = 5.0  # of waiting, which counts as much as a level of priority: no text starves


class WaitingTexts:
    """By priority, and among texts of one priority by what their clients have had: clients take turns, however many
    requests each of them has. Texts of one client come in the order of their arrival."""

    def __init__(self) -> None:
        self._texts: list[Text] = []
        self._served: dict[str, int] = {}  # tokens that were computed for each client that has texts here or in slots
        self._counts: dict[str, int] = {}  # its texts

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[Text]:
        return iter(self._texts)

    def enter(self, text: Text) -> None:
        """A new text."""
        client = text.request.client
        if client not in self._counts:  # who comes now has not saved up the time before
            self._served[client] = min(self._served.values(), default=0)
        self._counts[client] = self._counts.get(client, 0) + 1
        self._texts.append(text)

    def leave(self, text: Text) -> None:
        """A text has ended, here or in its slot."""
        client = text.request.client
        if text in self._texts:
            self._texts.remove(text)
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client], self._served[client]

    def back(self, text: Text) -> None:
        """A text has lost its slot."""
        self._texts.append(text)

    def served(self, text: Text, tokens: int) -> None:
        """So many tokens were computed for a text."""
        self._served[text.request.client] += tokens

    def first(self) -> Text | None:
        """The text whose turn it is; none whose client does not read."""
        now = perf_counter()

        def rank(text: Text) -> tuple[int, int, float]:
            return _aged(text, now), self._served[text.request.client], text.arrived

        return min((text for text in self._texts if not text.handle.paused), key=rank, default=None)

    def take(self, text: Text) -> None:
        """It gets a slot, and keeps it against those that are not more urgent than it has become."""
        self._texts.remove(text)
        text.level = _aged(text, perf_counter())


def _aged(text: Text, now: float) -> int:
    """Its priority, by what it has waited."""
    return max(1, text.level - int((now - text.arrived) / AGE_S))
