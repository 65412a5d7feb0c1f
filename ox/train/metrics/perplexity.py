"""Perplexity of a language model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ox.train.metrics.classes import IGNORED, scores
from ox.train.metrics.metric import Array, Metric, State


class Perplexity(Metric):
    """exp of the mean negative log-probability of the targets, each token counting the same. ``torchmetrics.text``'s.

    Args:
        axis: of the classes; needed only where shapes fit both 1 and -1.
        ignore_index: targets of this value (padding) are not counted.

    `update(outputs, targets)` takes logits or log-probabilities, [n, t, classes] or [n, classes, t], and
    integers [n, t].
    """

    name = "perplexity"
    higher_is_better = False

    def __init__(self, *, axis: int | None = None, ignore_index: int = IGNORED) -> None:
        super().__init__()
        self.axis, self.ignore_index = axis, ignore_index

    def count(self, outputs: Array, targets: Array) -> State:
        rows, labels = scores(outputs, targets, self.axis, self.ignore_index)
        rows = rows.astype(np.float64)
        most = rows.max(1, initial=-np.inf)
        total = np.log(np.exp(rows - most[:, None]).sum(1)) + most
        lost = total - np.take_along_axis(rows, labels[:, None], 1)[:, 0]
        return {"lost": np.array(lost.sum()), "count": np.array(len(labels))}

    def result(self, state: Mapping[str, Array]) -> float:
        with np.errstate(over="ignore"):
            return float(np.exp(state["lost"] / state["count"])) if state["count"] else float("nan")
