"""The compiled kernels of this process: loaded once, called with arrays and numbers."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ox.call_site import users_place
from ox.kernels import compiler
from ox.kernels.prebuilt_library import DamagedError, PrebuiltError, prebuilt_library
from ox.kernels.signatures import INTEGER, POINTER, signatures, with_status

KINDS = {POINTER: ctypes.c_void_p, INTEGER: ctypes.c_int64}
ON, OFF = ("", "1", "on", "true", "yes"), ("0", "off", "false", "no")  # values of OX_KERNELS, in any case
DATA = 16  # bytes from the start of a NumPy array object to its data pointer (PyArrayObject's first field)


def _check(status: int) -> None:
    """What ctypes calls with the result of a kernel that needs memory of its own."""
    if status:
        raise MemoryError("a compiled kernel found no memory for its work")


class Library:
    """Kernels by name, as functions of a count, addresses and numbers.

    Raises MemoryError from kernels that find no memory for their work.
    """

    def __init__(self, path: os.PathLike[str] | str, key: str = "", origin: str = "compiled") -> None:
        """
        Args:
            path: the file.
            key: the name of the library in the config of a run; by default that of a library in the cache, which stands
                for sources, flags, compiler and processor.
            origin: where it comes from, for `ox doctor`.
        """
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
        self.parallel = ctypes.cast(library.ox_parallel, ctypes.c_void_p).value  # what generated kernels share work by
        self.path = os.fspath(path)
        self.key = key or Path(self.path).stem.partition("-")[0]
        self.origin = origin

    # Kernels go through these for what is no kernel, so that a call can be recorded and repeated on the same arrays
    # (ox.engines.native.recorder). Of arrays that hold numbers of a call, `numbers` gives the address.
    empty: Any = staticmethod(np.empty)
    empty_like: Any = staticmethod(np.empty_like)
    dense: Any = staticmethod(np.ascontiguousarray)

    @staticmethod
    def numbers(array: Any) -> int:
        """The address of an array that is alive for as long as the call."""
        return address(array)

    @staticmethod
    def call(function: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function of arrays, for its effect on them."""
        function(*arguments)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no kernel {name}")


_reason: list[str] = []


def kernels() -> Library | None:
    """The library; None where there is none, and `reason()` says why. Decided once a process.

    A library of the wheel that fits this processor, else one compiled for it, from the cache or made now.
    ``OX_KERNELS=native`` in the environment passes over those of the wheel, ``OX_KERNELS=off`` over all. What is
    damaged or does not compile is said once, in a warning.
    """
    found, problems = _found()
    while problems:  # first removed, so that a filter which makes errors of warnings raises once
        file, line = users_place() or (__file__, 1)
        warnings.warn_explicit(f"compiled kernels: {problems.pop(0)}", RuntimeWarning, file, line)
    return found


@cache
def _found() -> tuple[Library | None, list[str]]:
    """The library, and what the user should hear about finding it."""
    setting, problems, missing = os.environ.get("OX_KERNELS", ""), [], []
    wanted = setting.strip().lower()
    if wanted in OFF:
        _reason.append(f"they are switched off by OX_KERNELS={setting}")
        return None, []
    if wanted not in (*ON, "native"):
        problems.append(f"OX_KERNELS={setting} means nothing: off is without them, native compiles them here")
    if wanted != "native":
        try:
            prebuilt = prebuilt_library()
            origin = f"prebuilt for {prebuilt.level} by {prebuilt.compiler}"
            return Library(prebuilt.path, prebuilt.key, origin), problems
        except PrebuiltError as error:
            missing.append(str(error))
            if isinstance(error, DamagedError):
                problems.append(str(error))
        except (OSError, AttributeError) as error:
            missing.append(f"the library of this installation does not load: {error}")
            problems.append(missing[-1])
    try:
        path, command = compiler.library(), compiler.find_compiler()
        name = "ziglang" if "ziglang" in command else command[0]
        return Library(path, origin=f"compiled for this processor by {name}"), problems
    except (compiler.CompilerError, OSError, AttributeError) as error:
        _reason.append("; ".join([*missing, str(error)]))
        if not isinstance(error, compiler.NoCompilerError):
            problems.append(f"NumPy and ONNX Runtime run instead: {error}")
        return None, problems


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
