"""Texts that wait for a slot, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ox.serve.generation.text import Text

AGE_S = 5.0  # of waiting, which counts as much as a level of priority: no text starves


class WaitingTexts:
    """By priority, and among texts of one priority by what their clients have had: clients take turns, however many
    requests each of them has. Texts of one client come in the order of their arrival.

    A text that has waited long is more urgent, and so are all texts of its priority and of higher ones: else a client
    that has sent thousands would be more urgent than one that comes with its first."""

    def __init__(self) -> None:
        self._texts: dict[Text, None] = {}  # in the order of their arrival, but for those that had a slot
        self._served: dict[str, int] = {}  # tokens that were computed for each client that has texts here or in slots
        self._counts: dict[str, int] = {}  # its texts
        self._first_level = 0  # what the priority of the text that `first` found has become

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
        self._texts[text] = None

    def leave(self, text: Text) -> None:
        """A text has ended, here or in its slot."""
        client = text.request.client
        self._texts.pop(text, None)
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client], self._served[client]

    def back(self, text: Text) -> None:
        """A text has lost its slot."""
        self._texts[text] = None

    def served(self, text: Text, tokens: int) -> None:
        """So many tokens were computed for a text."""
        self._served[text.request.client] += tokens

    def first(self, now: float) -> Text | None:
        """The text whose turn it is at the time `now`; none whose client does not read."""
        oldest: dict[tuple[str, int], Text] = {}
        for text in self._texts:  # may be thousands, in each turn of the engine
            if not text.handle.paused:
                key = text.request.client, text.level
                other = oldest.setdefault(key, text)
                if text.arrived < other.arrived:
                    oldest[key] = text
        levels = _levels(oldest.values(), now)

        def rank(text: Text) -> tuple[int, int, float]:
            return levels[text.level], self._served[text.request.client], text.arrived

        first = min(oldest.values(), key=rank, default=None)
        self._first_level = 0 if first is None else levels[first.level]
        return first

    def take(self, text: Text) -> None:
        """The text that `first` has just found gets a slot, and keeps it against those that are not more urgent than it
        has become."""
        del self._texts[text]
        text.level = self._first_level


def _levels(texts: Iterable[Text], now: float) -> dict[int, int]:
    """What priorities have become, by what their texts have waited."""
    arrived: dict[int, float] = {}
    for text in texts:
        arrived[text.level] = min(arrived.get(text.level, now), text.arrived)
    levels, least = dict[int, int](), max(arrived, default=0)
    for level in sorted(arrived, reverse=True):
        least = min(least, _aged(level, now - arrived[level]))
        levels[level] = least
    return levels


def _aged(level: int, waited: float) -> int:
    """A priority after some seconds."""
    return max(1, level - int(waited / AGE_S))
