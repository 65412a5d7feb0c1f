"""A stand-in for CuPy that computes with NumPy. It refuses what CuPy refuses: arrays of the host, names, keywords.

`install()` before ox is imported makes it the module `cupy`. It has the names of cupy_names.json that NumPy has, too,
and neither kernels of its own nor cuBLAS nor CUDA graphs.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

import numpy as np

from strict_numpy import array, device, functions

__all__ = ["install"]


def install() -> ModuleType:
    """Make the stand-in `cupy`. Returns the module."""
    os.environ["OX_KERNELS"] = "off"  # kernels of ox's own
    np.seterr(all="ignore")  # CuPy computes without warnings
    cupy = functions.namespace()
    cupy.cuda = device.namespace()
    cupy.ndarray = array.ndarray
    cupy.get_default_memory_pool = cupy.get_default_pinned_memory_pool = device.MemoryPool
    cupyx = ModuleType("cupyx")
    for name in ("scatter_add", "scatter_max", "scatter_min"):
        setattr(cupyx, name, lambda a, slices, value, name=name: getattr(a, name)(slices, value))
    array.owner = cupy
    sys.modules |= {"cupy": cupy, "cupyx": cupyx, "cupy.cuda": cupy.cuda, "cupy.cuda.runtime": cupy.cuda.runtime}
    sys.modules |= {"cupy.linalg": cupy.linalg, "cupy.fft": cupy.fft}
    return cupy
