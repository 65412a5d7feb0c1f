"""Targets of cross entropies are checked before a kernel reads the scores at their places."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ox.core.operator import OPS
from ox.errors import ShapeError


@cache
def reads_classes(key: str) -> bool:
    """Whether an operator is a cross entropy of classes, or its gradient: their compiled kernels read the score at the
    index that a target names."""
    op = OPS.get(key)
    if op is None or op.domain != "ox":
        return False
    targets = [i for i in op.schema.inputs if i.name == "target"]
    return any(dtype.kind == "i" for i in targets for dtype in op.schema.allowed(i.type))


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
