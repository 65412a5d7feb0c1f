"""Samples of the operators that normalize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sample import Sample, call, normal

_even: dict[str, Any] = {"size": 4, "alpha": 0.5, "beta": 0.6, "bias": 1.5}

MORE: dict[str, Callable[[], list[Sample]]] = {
    "InstanceNormalization": lambda: [
        call(normal(2, 3, 4), normal(3), normal(3)),
        call(normal(2, 3, 2, 3), normal(3), normal(3), epsilon=0.1),
    ],
    "GroupNormalization": lambda: [
        call(normal(2, 4, 3), normal(4), normal(4), num_groups=2),
        call(normal(2, 6, 2, 2), normal(6), normal(6), num_groups=3, epsilon=0.1),
        call(normal(3, 4), normal(4), normal(4), num_groups=1),
    ],
    "MeanVarianceNormalization": lambda: [
        call(normal(2, 3, 2, 2)),
        call(normal(2, 3, 4), axes=[-1]),
        call(normal(3, 4), axes=[0, 1]),
    ],
    "RMSNormalization": lambda: [
        call(normal(2, 3, 4), normal(4)),
        call(normal(2, 3, 4), normal(3, 4), axis=1, epsilon=0.1),
        call(normal(2, 3, 4), normal(), axis=-2),
    ],
    "LpNormalization": lambda: [
        *[call(normal(2, 3, 4), axis=a, p=p) for a in (0, 1, -1) for p in (1, 2)],
        call(np.concatenate([normal(1, 4), normal(1, 4)]), axis=-1),
    ],
    "LRN": lambda: [
        call(normal(2, 6, 2, 2), size=3, alpha=0.9),
        call(normal(1, 5, 2, 1), **_even),
        call(normal(1, 2, 2, 2), size=7),
    ],
}
FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    "ox.RunningStatistics": lambda: [
        call(normal(3), normal(3), normal(3), normal(3), normal(), normal(), outputs=2),
    ],
}
