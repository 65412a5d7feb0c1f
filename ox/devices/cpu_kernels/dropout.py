"""Dropout that draws its numbers and applies them in one pass; the bits are those of `ox.ops.random.philox`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox.dtypes import float32, uint64
from ox.kernels import Library, address


def dropout(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """PhiloxDropout."""
    x, key, counter = arrays
    p = attributes["p"]
    if not x.size or not p < 1 or key.dtype != uint64 or prod(key.shape) != 1:
        return None
    x = np.ascontiguousarray(x)
    y = np.empty_like(x)
    scale = float32.type(1 / (1 - p))
    library.ox_dropout((x.size + 3) // 4, address(x), address(y), int(key), int(counter), p, scale, x.size)
    return y
