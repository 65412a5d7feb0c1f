"""Which class is taken for which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from ox.train.metrics.classes import IGNORED, predicted_classes
from ox.train.metrics.metric import Array, Metric, State


class ConfusionMatrix(Metric):
    """How often class i (row) was taken for class j (column): int64 [classes, classes].
    ``torchmetrics.ConfusionMatrix``, ``sklearn.metrics.confusion_matrix``.

    Args:
        classes: how many; needed only for outputs that are answers and not scores.
        axis, ignore_index, threshold: as in `Accuracy`, and so are the shapes.
    """

    name = "confusion"
    higher_is_better: ClassVar[bool | None] = None

    def __init__(
        self,
        classes: int | None = None,
        *,
        axis: int | None = None,
        ignore_index: int = IGNORED,
        threshold: float = 0.0,
    ) -> None:
        super().__init__()
        self.classes, self.axis, self.ignore_index, self.threshold = classes, axis, ignore_index, threshold

    def count(self, outputs: Array, targets: Array) -> State:
        return {"matrix": self._matrix(outputs, targets)}

    def _matrix(self, outputs: Array, targets: Array) -> Array:
        answered, labels, classes = predicted_classes(
            outputs, targets, self.axis, self.ignore_index, self.threshold, self.classes
        )
        return np.bincount(labels * classes + answered, minlength=classes * classes).reshape(classes, classes)

    def result(self, state: Mapping[str, Array]) -> Array:
        return state["matrix"]
