"""Other values for an example: a number that was computed from the example by other means than operators shows."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import numpy as np

from ox.dtypes import is_floating
from ox.graph.ir import Array


class Values(Enum):
    """What a recording is given in place of the example's own values."""

    OWN = auto()
    HALVED = auto()  # a model takes these wherever it takes its own
    OPPOSITE = auto()  # signs, zeros and truth values differ, which not every model takes


def changed(array: Array, values: Values, low: Any) -> Array:
    """Floating numbers halved or with the other sign; whole numbers half of what they are above `low`, or zeros, or
    ones if they are zeros; truth values as they are, or inverted. Everything else stays."""
    if values is Values.OWN or not array.size:
        return array
    halve = values is Values.HALVED
    if is_floating(array.dtype):
        other: Array = array * array.dtype.type(0.5 if halve else -1)
        return other
    if array.dtype.kind in "iu":
        return low + (array - low) // array.dtype.type(2) if halve else np.full_like(array, not array.any())
    return ~array if array.dtype.kind == "b" and not halve else array
