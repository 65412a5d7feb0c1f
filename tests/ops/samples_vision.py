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


_boxes = np.array([[0.3, 0.4, 4.1, 3.2], [1.2, 0.7, 2.9, 5.6], [-3.0, 1.1, 8.7, 7.9]])
_pooled = np.array([[0.0, 0, 1, 4, 3], [1, 1, 0, 3, 5], [1, 2, 2, 2, 2]])


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
    "DeformConv": lambda: [
        call(normal(2, 2, 5, 4), normal(3, 2, 2, 2), grid(2, 8, 4, 3)),
        call(
            *(normal(2, 4, 5, 4), normal(6, 2, 3, 2), grid(2, 24, 3, 3), normal(6), normal(2, 12, 3, 3)),
            group=2,
            offset_group=2,
            strides=[2, 1],
            pads=[1, 0, 1, 1],
            dilations=[1, 2],
        ),
        Sample((normal(1, 2, 4), normal(2, 2, 2), grid(1, 2, 3), None, normal(1, 2, 3)), name="taps moved in 1-D"),
        Sample((normal(1, 1, 3, 2, 3), normal(1, 1, 2, 1, 2), grid(1, 12, 2, 2, 2)), name="taps moved in 3-D"),
    ],
    "RoiAlign": lambda: [
        call(normal(2, 2, 6, 5), _boxes, ints(0, 1, 1), output_height=2, output_width=3, spatial_scale=0.9, **a)
        for a in (
            {"sampling_ratio": 2},
            {"coordinate_transformation_mode": "output_half_pixel"},
        )
    ],
    "MaxRoiPool": lambda: [
        call(normal(2, 2, 6, 5), _pooled, pooled_shape=[2, 3]),
        call(normal(2, 2, 6, 5), _pooled, pooled_shape=[1, 2], spatial_scale=0.5),
    ],
}
