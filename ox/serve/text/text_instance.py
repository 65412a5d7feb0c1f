"""Runs texts of a batch, those of similar length together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ox.graph.contract import Array
from ox.serve.batching.padding import Padding
from ox.serve.runtime.instance import Feed, Instance
from ox.serve.text.text_tensors import TOKENS, TextTensors

FILLED = 0.2  # of a batch may be padding,
FEW = 64  # or so many tokens: a further run costs more


class TextInstance:
    """An instance that takes encoded texts and gives one row for each.

    Args:
        instance: takes and gives what the model has.
        text: the tensors of the model.
        max_rows: the most texts of a run.
        padded: whether texts of several lengths may share a run.
        whole: how runs are filled up to lengths that the instance has buffers for; None where they are not.
    """

    def __init__(
        self, instance: Instance, text: TextTensors, max_rows: int, padded: bool, whole: Padding | None = None
    ) -> None:
        self._instance, self._text, self._max_rows, self._padded = instance, text, max_rows, padded
        self._whole = whole
        self.control = instance.control
        self.gathered_at = 0.0

    def __call__(self, feeds: Sequence[Feed], control: Any = None) -> list[Array]:
        rows: list[Array] = [row for feed in feeds for row in feed[TOKENS]]
        self.gathered_at = self._instance.now()
        results: Array | None = None
        for places in groups([row.shape[1] for row in rows], self._max_rows, self._padded):
            texts = [rows[place] for place in places]
            batch = self._text.batch(texts)
            if self._whole is not None:
                batch = self._whole.gather([batch])
            part = self._text.result(self._instance((batch,), control), texts)
            if results is None:
                results = np.empty((len(rows), *part.shape[1:]), part.dtype)
            results[places] = part
        assert results is not None  # a request has a row or more
        return [results]


def groups(lengths: Sequence[int], max_rows: int, padded: bool) -> Iterator[list[int]]:
    """The places of the texts of each run, from the longest to the shortest: up to `max_rows`, and with little padding,
    or of one length each."""
    group: list[int] = []
    total = 0
    for place in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if group:
            longest = lengths[group[0]]
            cells = longest * (len(group) + 1)
            filled = cells - total - lengths[place]
            most = max(FILLED * cells, FEW) if padded else 0
            if len(group) == max_rows or filled > most:
                yield group
                group, total = [], 0
        group.append(place)
        total += lengths[place]
    if group:
        yield group
