"""The compiled kernels of this process: loaded once, called with arrays and numbers."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ox.kernels import compiler
from ox.kernels.signatures import INTEGER, POINTER, signatures, with_status

KINDS = {POINTER: ctypes.c_void_p, INTEGER: ctypes.c_int64}
DATA = 16  # bytes from the start of a NumPy array object to its data pointer (PyArrayObject's first field)


def _check(status: int) -> None:
    """What ctypes calls with the result of a kernel that needs memory of its own."""
    if status:
        raise MemoryError("a compiled kernel found no memory for its work")


class Library:
    """Kernels by name, as functions of a count, addresses and numbers.

    Raises MemoryError from kernels that find no memory for their work.
    """

    def __init__(self, path: os.PathLike[str] | str) -> None:
        library = ctypes.CDLL(os.fspath(path))
        for name, kinds in signatures().items():
            function = getattr(library, name)
            function.restype = _check if name in with_status() else None
            function.argtypes = [KINDS.get(kind, ctypes.c_float) for kind in kinds]
            setattr(self, name, function)
        self.set_threads, self.keep_memory = library.ox_set_threads, library.ox_keep_memory
        for function in (self.set_threads, self.keep_memory):
            function.restype, function.argtypes = None, [ctypes.c_int64]
        library.ox_multiplies_bfloat16.restype, library.ox_multiplies_bfloat16.argtypes = ctypes.c_int64, []
        self.multiplies_bfloat16 = bool(library.ox_multiplies_bfloat16())  # twice as fast as float32
        self.path = os.fspath(path)
        self.key = Path(self.path).stem.partition("-")[0]  # of sources, flags, compiler and processor

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no kernel {name}")


_reason: list[str] = []


@cache
def kernels() -> Library | None:
    """The library, compiled if need be; None where there is none, and `reason()` says why. Decided once a process.

    ``OX_KERNELS=0`` in the environment switches them off.
    """
    if os.environ.get("OX_KERNELS") == "0":
        _reason.append("they are switched off by OX_KERNELS=0")
        return None
    try:
        return Library(compiler.library())
    except (compiler.CompilerError, OSError, AttributeError) as error:
        _reason.append(str(error))
        return None


def reason() -> str | None:
    """Why there are no kernels; None if there are some, or if nobody has asked for them."""
    return _reason[0] if _reason else None


def _slow_address(array: Any) -> int:
    return int(array.ctypes.data)


def _fast_address(array: Any, read: Any = ctypes.c_void_p.from_address) -> int:
    return read(id(array) + DATA).value or 0


def _fits() -> bool:
    """Whether arrays of this NumPy keep their data pointer where `_fast_address` reads it."""
    probe = np.arange(3.0)[1:]
    word = ctypes.sizeof(ctypes.c_void_p)
    return object.__basicsize__ == DATA and word == 8 and bool(_fast_address(probe) == _slow_address(probe))


# Of an array's first element. NumPy's own way (`array.ctypes.data`) takes a microsecond, as long as a small kernel.
address: Callable[[Any], int] = _fast_address if _fits() else _slow_address
