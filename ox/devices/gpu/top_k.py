"""The best numbers of rows on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.devices.gpu.kernels import THREADS, kernel
from ox.dtypes import DType

MOST_BEST = 128  # of a row, at most as many as a block has threads


def best_of_rows(rows: Any, out: Any, k: int, sums: bool, dtype: DType | None = None) -> None:
    """Finds the `k` best of each row, the best first, of equal ones that of the lowest column (0 equals -0) and NaN
    before all; ordered on the current stream. ONNX TopK, which says nothing about NaN.

    Args:
        rows: CuPy's, floating [n, width], contiguous.
        out: CuPy's int64, at least [n * (k + 1)], for `best_from_words`.
        k: at most MOST_BEST and `width`.
        sums: whether the sums of exp(x - the largest x) are computed, in float64.
        dtype: of the numbers, where it is not that of the array: bfloat16 lies in arrays of uint16.
    """
    count, width = rows.shape
    if count:
        find = kernel("ox_device_best", "device_best.cu", dtype or rows.dtype)
        find((count,), (THREADS,), (rows, out, width, k, int(sums)))


def forbid(rows: Any, allowed: Any, dtype: DType | None = None) -> None:
    """Sets numbers of rows to minus infinity; ordered on the current stream.

    Args:
        rows: as of `best_of_rows`.
        allowed: CuPy's uint32 [n, ceil(width / 32)], contiguous: a bit for each number that stays, the lowest first.
        dtype: as of `best_of_rows`.
    """
    count, width = rows.shape
    kernel("ox_device_forbid", "device_best.cu", dtype or rows.dtype)(
        (count,), (THREADS,), (rows, allowed, width, allowed.shape[1])
    )


def best_from_words(words: np.ndarray[Any, Any], k: int) -> tuple[Any, Any, Any]:
    """What `best_of_rows` has written.

    Args:
        words: int64 [n, k + 1], on the host.

    Returns:
        columns int64 [n, k], numbers float32 [n, k], and sums float64 [n].
    """
    pairs = words[:, :k]
    numbers = (pairs >> 32).astype(np.uint32).view(np.float32)
    return pairs & 0xFFFFFFFF, numbers, words[:, k].copy().view(np.float64)
