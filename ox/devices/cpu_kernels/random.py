"""Random numbers on the compiled kernels; the bits are those of `ox.ops.random.philox`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.devices.cpu_kernels import kernel_table as compiled
from ox.kernels import Library, address

SMALLEST = 512  # numbers, from which on they are worth a library that may have to be compiled first


def library(xp: Any, key: Any, count: int) -> Library | None:
    """The kernels for so many numbers, None where NumPy or CuPy draws them."""
    return compiled.library() if xp is np and count >= SMALLEST and isinstance(key, np.ndarray | np.uint64) else None


def uniform(kernels: Library, key: Any, counter: Any, sizes: list[int]) -> Any:
    """float32 of these sizes in [0, 1)."""
    made = np.empty(sizes, np.float32)
    kernels.ox_random_uniform((made.size + 3) // 4, address(made), int(key), int(counter), made.size)
    return made
