"""Keys and values between two runs of a file that takes them as inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, tuple[int, int, np.dtype[Any]]]  # heads, size and type by the name of an input


class PastValues:
    """Keys and values of all layers between two runs of a file, and which tokens are real."""

    def __init__(self, empty: Sizes) -> None:
        self.values: dict[str, Array] = {}
        self.real: Array | None = None  # bool [batch, length]
        self._empty = empty

    def begin(self, batch: int) -> None:
        """No tokens yet."""
        self.values = {
            name: np.zeros((batch, heads, 0, size), dtype) for name, (heads, size, dtype) in self._empty.items()
        }
        self.real = np.ones((batch, 0), bool)

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these texts of the batch, in this order; one may be there several times."""
        index = np.asarray(rows, np.int64)
        self.values = {name: value[index] for name, value in self.values.items()}
        if self.real is not None:
            self.real = self.real[index]


class GroupedPastValues:
    """Those of a file that takes no padding before a text: texts of one length are a group, and run together.

    Attributes:
        groups: for each, the places of its texts in the batch, and their keys and values.
    """

    def __init__(self, empty: Sizes) -> None:
        self.groups: list[tuple[list[int], PastValues]] = []
        self._empty = empty

    def begin(self, lengths: Sequence[int]) -> None:
        """No tokens yet, of prompts of these lengths."""
        for length in sorted(set(lengths)):
            self.groups.append(([row for row, each in enumerate(lengths) if each == length], PastValues(self._empty)))

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these texts of the batch, in this order; one may be there several times."""
        chosen = []
        for places, past in self.groups:
            kept = [(new, places.index(old)) for new, old in enumerate(rows) if old in places]
            if kept:
                past.select([at for _, at in kept])
                chosen.append(([new for new, _ in kept], past))
        self.groups = chosen
