"""Samples of the losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sample import R, Sample, call, ints, normal, positive, single


def scored(**attributes: Any) -> list[Sample]:
    target = np.array([[2, 0], [1, 2], [0, 0]])
    made = []
    for reduction in ("mean", "sum", "none"):
        made += [
            call(normal(3, 3), ints(2, 0, 1), reduction=reduction, **attributes),
            call(normal(3, 3, 2), target, positive(3), reduction=reduction, **attributes),
            call(normal(3, 3, 2), target.astype(np.int32), None, reduction=reduction, ignore_index=0, **attributes),
            call(normal(3, 3, 2), target, positive(3), reduction=reduction, ignore_index=2, **attributes),
        ]
    return made


MORE: dict[str, Callable[[], list[Sample]]] = {
    "NegativeLogLikelihoodLoss": scored,
    "SoftmaxCrossEntropyLoss": lambda: scored() + scored(outputs=2),
}

FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    "ox.BinaryCrossEntropy": lambda: [
        call(R.uniform(0.1, 0.9, (3, 4)), R.uniform(0.1, 0.9, (3, 4))),
        call(np.array([0.0, 1.0, 0.0, 1.0], np.float32), np.array([0.0, 1.0, 1.0, 0.0], np.float32)),
    ],
    "ox.WeightedCrossEntropy": lambda: [
        call(single(4, 3), ints(2, 0, 1, 1), *weight, ignore_index=i, outputs=3)
        for weight in ((), (single(3),))
        for i in (-100, 1)
    ],
    "ox.WeightedCrossEntropyGradient": lambda: [
        call(single(4, 3), ints(2, 0, 1, 1), single(4), weight, *cotangents, ignore_index=i)
        for weight, i in ((None, -100), (single(3), 1))
        for cotangents in ((single(4),), (single(4), single(4)), (None, single(4)))
    ],
    "ox.SoftCrossEntropy": lambda: [
        call(single(4, 3), single(4, 3), *weight, smoothing=s, outputs=2)
        for weight in ((), (single(3),))
        for s in (0.0, 0.2)
    ],
    "ox.SoftCrossEntropyGradient": lambda: [
        call(single(4), single(4, 3), single(4, 3), single(4), *weight, smoothing=s)
        for weight in ((), (single(3),))
        for s in (0.0, 0.2)
    ],
}
