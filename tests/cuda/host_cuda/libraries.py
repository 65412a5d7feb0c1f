"""Thrust, cuFFT and cuSOLVER by NumPy, in device memory, with the types that they take and the waits of CuPy."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

SORTED = "?bBhHiIlLqQefdFD"
TRANSFORMED = SORTED
SOLVED = "?bBhHiIlLqQfdFD"  # no halves
TRANSFORMS = [f"{way}fft{rank}" for way in ("", "i", "r", "ir") for rank in ("", "2", "n")] + ["hfft", "ihfft"]
SOLVERS = [
    "solve",
    "inv",
    "svd",
    "qr",
    "eigh",
    "eigvalsh",
    "cholesky",
    "det",
    "slogdet",
    "lstsq",
    "pinv",
    "matrix_rank",
]
SOLVERS += ["eig", "eigvals"]


def memory(address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Device memory as an array of the host."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = (ctypes.c_char * size).from_address(address) if size else b""
    return np.frombuffer(buffer, dtype).reshape(shape)


def host_copy(array: Any) -> np.ndarray[Any, Any]:
    """An array of CuPy, copied without a count."""
    made = np.empty(array.shape, array.dtype)
    if array.size:
        one = memory(array.data.ptr, (1,), array.dtype)
        made[...] = np.lib.stride_tricks.as_strided(one, array.shape, array.strides)
    return made


def device_copy(cupy: Any, array: np.ndarray[Any, Any]) -> Any:
    """An array for CuPy, copied without a count."""
    made = cupy.empty(array.shape, array.dtype)
    memory(made.data.ptr, array.shape, array.dtype)[...] = array
    return made


def install(wait: Callable[[], None], refuse_in_capture: Callable[[], None]) -> None:
    """Replace the functions. `wait` counts a wait; `refuse_in_capture` raises while a stream is captured."""
    cupy = import_module("cupy")
    thrust = import_module("cupy.cuda.thrust")
    for function in (sort, argsort, lexsort):
        setattr(thrust, function.__name__, sorting(function, refuse_in_capture))
    for name in TRANSFORMS:
        theirs = getattr(cupy.fft, name)
        setattr(
            cupy.fft,
            name,
            through_numpy(cupy, theirs, getattr(np.fft, name), TRANSFORMED, refuse_in_capture, widens=False),
        )
    for name in SOLVERS:
        theirs = getattr(cupy.linalg, name, None)
        if theirs is not None:
            setattr(cupy.linalg, name, through_numpy(cupy, theirs, getattr(np.linalg, name), SOLVED, wait, widens=True))


def sort(dtype: Any, data: int, keys: int, shape: tuple[int, ...]) -> None:
    memory(data, shape, dtype).sort(axis=-1)


def argsort(dtype: Any, indices: int, data: int, keys: int, shape: tuple[int, ...]) -> None:
    values = memory(data, shape, dtype)
    memory(indices, shape, np.intp)[...] = np.argsort(values, -1, kind="stable")
    values.sort(axis=-1)


def lexsort(dtype: Any, indices: int, keys: int, count: int, size: int) -> None:
    memory(indices, (size,), np.intp)[...] = np.lexsort(memory(keys, (count, size), dtype))


def sorting(function: Callable[..., None], refuse_in_capture: Callable[[], None]) -> Callable[..., None]:
    def call(dtype: Any, *args: Any) -> None:
        refuse_in_capture()
        if np.dtype(dtype).char not in SORTED:
            raise NotImplementedError(f"Sorting arrays with dtype '{dtype}' is not supported")
        function(dtype, *args)

    return call


def through_numpy(
    cupy: Any, theirs: Callable[..., Any], ours: Callable[..., Any], types: str, begin: Callable[[], None], widens: bool
) -> Callable[..., Any]:
    """A function of CuPy by one of NumPy, with CuPy's parameters; `widens`: float32 may give what it gives there."""
    parameters = inspect.signature(theirs)

    def on_host(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            raise TypeError(f"Unsupported type {type(value)}")
        if not isinstance(value, cupy.ndarray):
            return value
        if value.dtype.char not in types:
            raise TypeError(f"dtype {value.dtype} is not supported")
        return host_copy(value)

    def on_device(value: Any) -> Any:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(on_device, value))
        if isinstance(value, tuple):
            return tuple(map(on_device, value))
        return device_copy(cupy, np.asarray(value)) if isinstance(value, np.ndarray | np.generic) else value

    def call(*args: Any, **options: Any) -> Any:
        parameters.bind(*args, **options)
        begin()
        made = ours(*map(on_host, args), **{name: on_host(value) for name, value in options.items()})
        if not widens and args[0].dtype == np.float32:
            made = made.astype(np.complex64 if made.dtype.kind == "c" else np.float32)
        return on_device(made)

    return call
