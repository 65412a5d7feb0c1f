"""Samples of Dropout, whose seed makes it a function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sample import Sample, call, normal

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
