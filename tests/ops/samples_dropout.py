"""Samples of Dropout, whose seed makes it a function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sample import Sample, call, normal, single

_on = np.array(True)
_off = np.array(False)

MORE: dict[str, Callable[[], list[Sample]]] = {
    "Dropout": lambda: [
        call(normal(3, 4)),
        call(normal(3, 4), np.array(0.25), _off, outputs=2),
        Sample((normal(3, 4), np.array(0.25, np.float32), _on), {"seed": 3}, 2, "a training dropout"),
        Sample((normal(3, 4), None, _on), {"seed": 4}, 1, "a training dropout"),
    ],
}

FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    "ox.PhiloxDropout": lambda: [
        call(single(*shape), np.array(1234567890123, np.uint64), np.array(2**34 - 2, np.uint64), p=p)
        for shape, p in (((7,), 0.5), ((3, 5), 0.25), ((2, 3, 2), 0.9))
    ],
}
