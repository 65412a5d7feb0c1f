"""How often the answer is right, or among the first k."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ox.errors import ArgumentError
from ox.train.metrics.classes import IGNORED, predicted_classes, scores
from ox.train.metrics.metric import Array, Metric, State


class Accuracy(Metric):
    """The share of right answers, 0 to 1. ``torchmetrics.Accuracy(average="micro")``.

    Args:
        axis: of the classes; needed only where shapes fit both 1 and -1.
        ignore_index: targets of this value are not counted.
        threshold: of outputs that are one score a target, for or against class 1: 0 for logits, 0.5 for probabilities.

    `update(outputs, targets)` takes scores [n, classes, ...] or [n, ..., classes] and integers [n, ...]; or one score
    a target (floating, of the targets' shape or with a last axis of 1); or answers, integers of the targets' shape.
    """

    name = "accuracy"

    def __init__(self, *, axis: int | None = None, ignore_index: int = IGNORED, threshold: float = 0.0) -> None:
        super().__init__()
        self.axis, self.ignore_index, self.threshold = axis, ignore_index, threshold

    def count(self, outputs: Array, targets: Array) -> State:
        if outputs.shape == targets.shape and outputs.dtype.kind in "iub":
            keep = targets != self.ignore_index
            right, total = (outputs == targets) & keep, keep
            return {"right": np.array(right.sum()), "count": np.array(total.sum())}
        answered, labels, _ = predicted_classes(outputs, targets, self.axis, self.ignore_index, self.threshold, None)
        return {"right": np.array((answered == labels).sum()), "count": np.array(len(labels))}

    def result(self, state: Mapping[str, Array]) -> float:
        return share(state["right"], state["count"])


class TopK(Metric):
    """The share of targets among the k largest scores; of equal scores the first class goes before.
    ``torchmetrics.Accuracy(top_k=k)``. Shapes as in `Accuracy`."""

    def __init__(self, k: int = 5, *, axis: int | None = None, ignore_index: int = IGNORED) -> None:
        super().__init__()
        if type(k) is not int or k < 1:
            raise ArgumentError("k is a whole number of at least 1", got=repr(k))
        self.k, self.axis, self.ignore_index = k, axis, ignore_index
        self.name = f"top{k}"

    def count(self, outputs: Array, targets: Array) -> State:
        rows, labels = scores(outputs, targets, self.axis, self.ignore_index)
        own = np.take_along_axis(rows, labels[:, None], 1)
        before = np.arange(rows.shape[1]) < labels[:, None]
        rank = ((rows > own) | ((rows == own) & before)).sum(1)
        return {"right": np.array((rank < self.k).sum()), "count": np.array(len(labels))}

    def result(self, state: Mapping[str, Array]) -> float:
        return share(state["right"], state["count"])


def share(part: Array, whole: Array) -> float:
    """NaN of nothing: a batch whose targets are all ignored has no share."""
    return float(part / whole) if whole else float("nan")
