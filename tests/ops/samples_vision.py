"""Samples of what looks at images through grids and boxes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from sample import R, Sample, call, ints, normal

from ox.dtypes import float64


def grid(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Coordinates inside and outside, off the borders of places."""
    return R.uniform(-1.7, 1.7, shape).astype(float64)


MORE: dict[str, Callable[[], list[Sample]]] = {
    "GridSample": lambda: [
        *[
            call(normal(2, 2, 4, 3), grid(2, 2, 3, 2), mode=m, padding_mode=p, align_corners=a)
            for m, p, a in product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1))
        ],
        *[
            call(normal(1, 2, 3, 2, 4), grid(1, 2, 1, 2, 3), mode=m, padding_mode=p)
            for m, p in product(("linear", "nearest"), ("zeros", "border", "reflection"))
        ],
    ],
    "AffineGrid": lambda: [
        *[call(normal(2, 2, 3), ints(2, 3, 4, 5), align_corners=a) for a in (0, 1)],
        call(normal(1, 3, 4), ints(1, 1, 2, 3, 2)),
    ],
}
