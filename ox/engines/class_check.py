"""Targets of cross entropies are checked before a kernel reads the scores at their places."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.errors import ShapeError

# Their compiled kernels read the score at the place that a target names.
CHECKED = frozenset(
    (
        "ox.CrossEntropy",
        "ox.MeanCrossEntropy",
        "ox.MeanSmoothedCrossEntropy",
        "ox.SmoothedCrossEntropyGradient",
        "ox.CrossEntropyGradient",
        "ox.WeightedCrossEntropy",
        "ox.WeightedCrossEntropyGradient",
    )
)


def check_classes(arrays: list[Any], attributes: dict[str, Any]) -> None:
    """For a call of a cross entropy or its gradient: the scores [N, C] are its first matrix, the target [N] follows.

    Raises:
        ShapeError: a class out of range, as `ox.nn.functional.cross_entropy` says it.
    """
    at = next((i for i, a in enumerate(arrays) if a is not None and a.ndim == 2), None)
    if at is None:
        return
    classes, target = arrays[at].shape[1], arrays[at + 1]
    if not target.size:
        return
    low, high = np.minimum.reduce(target, None), np.maximum.reduce(target, None)
    if low < 0 or high >= classes:
        ignored = attributes.get("ignore_index", -100)
        wrong = target[((target < 0) | (target >= classes)) & (target != ignored)]
        if wrong.size:
            raise ShapeError(
                "cross_entropy met a class out of range", expected=f"0 to {classes - 1}", got=str(wrong[0]), where=""
            )
