"""F1: the harmonic mean of precision and recall."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ox.errors import ArgumentError
from ox.train.metrics.classes import IGNORED
from ox.train.metrics.confusion import ConfusionMatrix
from ox.train.metrics.metric import Array, State

AVERAGES = ("macro", "micro", "weighted", "binary")


class F1(ConfusionMatrix):
    """2·right / (2·right + taken for it + missed). ``sklearn.metrics.f1_score(zero_division=0)``.

    Args:
        average: ``macro``, the mean over the classes that occur among targets or answers; ``micro``, over all answers
            together; ``weighted``, the mean weighted by how often a class is a target; ``binary``, of class 1 alone.
        classes, axis, ignore_index, threshold: as in `ConfusionMatrix`.
    """

    higher_is_better = True

    def __init__(
        self,
        average: str = "macro",
        classes: int | None = None,
        *,
        axis: int | None = None,
        ignore_index: int = IGNORED,
        threshold: float = 0.0,
    ) -> None:
        super().__init__(classes, axis=axis, ignore_index=ignore_index, threshold=threshold)
        if average not in AVERAGES:
            raise ArgumentError(f"there is no average '{average}'", expected=", ".join(AVERAGES))
        self.average = average
        self.name = "f1" if average == "macro" else f"f1_{average}"

    def count(self, outputs: Array, targets: Array) -> State:
        matrix = self._matrix(outputs, targets)
        if self.average == "binary" and len(matrix) != 2:
            raise ArgumentError(
                "F1('binary') is for two classes", got=f"{len(matrix)} classes",
                hint=" or ".join(AVERAGES[:3]),
            )  # fmt: skip
        return {"right": matrix.diagonal().copy(), "targets": matrix.sum(1), "answers": matrix.sum(0)}

    def result(self, state: Mapping[str, Array]) -> float:  # type: ignore[override]
        right, both = state["right"].astype(np.float64), (state["targets"] + state["answers"]).astype(np.float64)
        if not both.any():
            return float("nan")
        if self.average == "micro":
            return float(2 * right.sum() / both.sum())
        each = np.divide(2 * right, both, out=np.zeros_like(both), where=both > 0)
        if self.average == "binary":
            return float(each[1])
        weights = both > 0 if self.average == "macro" else state["targets"]
        return float(np.average(each, weights=weights)) if weights.any() else 0.0
