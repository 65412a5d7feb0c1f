"""Samples of Resize: its modes, coordinates, and ways to say a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sample import Sample, call, ints, normal


def scales(*values: float) -> Any:
    return np.array(values, np.float32)


def _resize() -> list[Sample]:
    by_size = [
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"mode": "linear"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        {"mode": "cubic"},
        {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
        {"mode": "linear", "antialias": 1, "exclude_outside": 1},
        {"mode": "cubic", "antialias": 1, "cubic_coeff_a": -0.5, "exclude_outside": 1},
    ]
    return [
        *[call(normal(2, 2, 5, 4), None, None, ints(3, 7), axes=[2, 3], **a) for a in by_size],
        *[call(normal(1, 2, 4, 3), None, scales(1, 1, 1.5, 2.3), **a) for a in by_size if "align" not in str(a)],
        call(normal(2, 2, 5), None, None, ints(2, 2, 8), mode="linear"),
        call(normal(1, 1, 3, 4, 3), None, None, ints(5, 3, 6), axes=[2, 3, 4], mode="linear"),
        call(
            normal(1, 1, 4, 5),
            np.array([0.1, 0.3, 0.7, 1.2], np.float32),
            None,
            ints(3, 4),
            axes=[2, 3],
            mode="linear",
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=2.0,
        ),
        *[
            call(normal(1, 2, 4, 3), None, None, ints(7, 8), axes=[2, 3], mode="linear", keep_aspect_ratio_policy=p)
            for p in ("not_larger", "not_smaller")
        ],
    ]


MORE: dict[str, Callable[[], list[Sample]]] = {
    "Resize": _resize,
    "Upsample": lambda: [call(normal(1, 1, 2, 3), scales(1, 1, 2, 3), mode=m) for m in ("nearest", "linear")],
}
