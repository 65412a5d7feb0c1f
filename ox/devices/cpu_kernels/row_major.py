"""Row-major copies of arrays whose axes were exchanged, on the compiled kernels where these are faster."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.devices import cuda_state
from ox.devices.cpu_kernels import copy as compiled_copy
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.dtypes import float32


def row_major(a: Any) -> Any:
    """A copy in row-major order; a GPU's array is copied there."""
    if isinstance(a, np.ndarray) and a.dtype == float32 and a.size >= compiled_copy.SMALLEST:
        kernels = None if a.flags.c_contiguous else compiled.library()
        made = None if kernels is None else compiled_copy.contiguous(kernels, a)
        if made is not None:
            return made
    with cuda_state.at(a):
        return a.copy()
