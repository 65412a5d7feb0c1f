"""Samples of the quantizing operators: zero points and scales a row, a column, a channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sample import R, Sample, call, single


def bytes_of(*shape: int) -> np.ndarray[Any, Any]:
    return R.integers(0, 256, shape).astype(np.uint8)


def scale(*shape: int) -> np.ndarray[Any, Any]:
    return R.uniform(0.01, 0.1, shape).astype(np.float32)


MORE: dict[str, Callable[[], list[Sample]]] = {
    "QuantizeLinear": lambda: [
        call(single(4, 3), scale(), np.array(3, np.int8)),
        call(single(4, 3), scale(3), output_dtype=3),
    ],
    "DequantizeLinear": lambda: [
        call(bytes_of(4, 3), scale(3), bytes_of(3)),
        call(bytes_of(4).astype(np.int32), scale()),
    ],
    "DynamicQuantizeLinear": lambda: [call(single(3, 4), outputs=3)],
    "MatMulInteger": lambda: [
        call(bytes_of(3, 4), bytes_of(4, 2)),
        call(bytes_of(2, 3, 4), bytes_of(4, 2), bytes_of()),
    ],
    "QLinearConv": lambda: [
        call(
            bytes_of(1, 2, 5, 5),
            scale(),
            bytes_of(),
            bytes_of(3, 2, 3, 3),
            scale(3),
            bytes_of(3) * 0 + 128,
            scale() * 900,
            bytes_of(),
            R.integers(-99, 99, 3).astype(np.int32),
            pads=[1, 1, 1, 1],
        ),
    ],
}
