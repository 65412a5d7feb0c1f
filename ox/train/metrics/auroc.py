"""The area under the ROC curve, exact."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ox.errors import ArgumentError
from ox.train.metrics.classes import IGNORED, binary_scores, is_binary, scores
from ox.train.metrics.metric import Array, Metric, State


class AUROC(Metric):
    """How likely a sample of a class scores above one that is not; equal scores count one half. With more than two
    classes each against the rest, and the mean over the classes that have both. ``sklearn.metrics.roc_auc_score``.

    It is exact and therefore keeps every score and target until `reset`: 4 bytes a score and 8 a target.

    Args:
        from_logits: outputs of more than two classes are logits, to be made probabilities first (between samples
            softmax changes the order). False: they are probabilities.
        axis, ignore_index: as in `Accuracy`.

    `update(outputs, targets)` takes scores [n, classes, ...] or [n, ..., classes] and integers [n, ...]; or one score
    a target, of class 1 against class 0. `compute()` is NaN where no class has both samples of it and others.
    """

    name = "auroc"

    def __init__(self, *, from_logits: bool = True, axis: int | None = None, ignore_index: int = IGNORED) -> None:
        super().__init__()
        self.from_logits, self.axis, self.ignore_index = from_logits, axis, ignore_index
        self._parts: list[Mapping[str, Array]] = []

    def count(self, outputs: Array, targets: Array) -> State:
        if is_binary(outputs, targets):
            rows, labels = binary_scores(outputs, targets, self.ignore_index)
            rows = rows[:, None]
        else:
            rows, labels = scores(outputs, targets, self.axis, self.ignore_index)
            if rows.shape[1] == 1:
                raise ArgumentError("one class has no ROC curve", got=f"outputs {list(outputs.shape)}")
            if rows.shape[1] == 2:  # softmax of two rises with their difference
                rows = rows[:, 1:].astype(np.float64) - rows[:, :1]
            elif self.from_logits:
                rows = np.exp(rows - rows.max(1, keepdims=True, initial=-np.inf))
                rows = rows / rows.sum(1, keepdims=True)
        return {"scores": rows.astype(np.float64 if rows.dtype == np.float64 else np.float32), "targets": labels}

    def merge(self, state: Mapping[str, Array]) -> None:
        if state:
            self._parts.append(state)
            widths = {part["scores"].shape[1] for part in self._parts[:: max(1, len(self._parts) - 1)]}
            if len(widths) > 1:
                self._parts.pop()
                raise ArgumentError("AUROC cannot merge scores of another number of classes")

    def reset(self) -> None:
        self._parts = []

    def state_dict(self) -> State:
        """All scores and targets so far, in one array each."""
        if not self._parts:
            return {}
        if len(self._parts) > 1:
            self._parts = [{name: np.concatenate([p[name] for p in self._parts]) for name in ("scores", "targets")}]
        return dict(self._parts[0])

    def compute(self) -> float:
        self._state = self.state_dict()
        return float(super().compute())

    def result(self, state: Mapping[str, Array]) -> float:
        rows, labels = state["scores"], state["targets"]
        if rows.shape[1] == 1:
            return area(rows[:, 0], labels == 1)
        each = [area(rows[:, label], labels == label) for label in range(rows.shape[1])]
        known = [a for a in each if not np.isnan(a)]
        return float(np.mean(known)) if known else float("nan")


def area(scores: Array, positive: Array) -> float:
    """The Mann-Whitney statistic: the share of pairs in which the positive one scores higher, ties one half."""
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return float("nan")
    _, inverse, repeats = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(repeats) - (repeats - 1) / 2)[inverse]  # 1, 2, ...; equals share their mean
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * others))
