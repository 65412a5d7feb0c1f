"""Copies of many parts of arrays on a GPU by one launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.kernels import THREADS, WORDS, kernel

MOST_PARTS = 64  # blocks that share a line of the table


def copy_runs(*columns: Any, exchange: bool = False) -> None:
    """Copies runs of bytes, ordered on the current stream. No target may overlap a source, or another target.

    Args:
        columns: whole numbers or arrays that broadcast with each other: for each copy the addresses of its source and
            its target, the number of runs, the bytes of a run, and how many bytes runs lie apart in the source and in
            the target.
        exchange: whether sources get what targets had.
    """
    table = np.stack(np.broadcast_arrays(*columns), -1).astype(np.int64).reshape(-1, 6)
    if not table[:, 3].any():
        return
    sizes = table[:, [0, 1, 3, 4, 5]]
    common = int(np.gcd.reduce(sizes, None))
    unit = min(max(WORDS), common & -common)
    table[:, 3:] //= unit
    parts = min(MOST_PARTS, max(1, -(-int(table[:, 3].max()) // THREADS)))
    copy = kernel("ox_device_copy_runs", "device_runs.cu", more=f"#define UNIT {WORDS[unit]}\n")
    copy((len(table), parts), (THREADS,), (cupy().asarray(table), int(exchange)))
