"""Tensors of axes and fixed shapes, which calls share."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.core import operator

FIXED: dict[tuple[int, ...], Any] = {}
MOST_FIXED = 1024


def ints(*values: int) -> Any:
    """int64 [n]: axes, a fixed shape. Shared, so read-only."""
    made = FIXED.get(values)
    if made is None:
        if len(FIXED) >= MOST_FIXED:
            FIXED.clear()
        made = FIXED[values] = operator.as_input(np.array(values, np.int64))
        made.array.flags.writeable = False
    return made
