"""Libraries of kernels that were generated for one graph. They run on the threads of the kernel library."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

from ox.kernels.compiler import generated_library
from ox.kernels.library import Library

Launch = Callable[[int, int, int], None]  # number of blocks; addresses of the table and of the plan, as in blocks.h


def load(library: Library, text: str, names: Sequence[str]) -> dict[str, Launch]:
    """The kernels of a source by name, compiled unless that was done before.

    Raises:
        CompilerError: there is no compiler, or it failed.
        OSError: what was compiled does not load.
    """
    generated = ctypes.CDLL(os.fspath(generated_library(text)))
    share: Any = generated.ox_share_threads
    share.restype, share.argtypes = None, [ctypes.c_void_p]
    share(library.parallel)
    kernels: dict[str, Any] = {name: getattr(generated, name) for name in names}
    for kernel in kernels.values():
        kernel.restype, kernel.argtypes = None, [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    return kernels
