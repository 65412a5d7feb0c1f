"""The functions and ufuncs of the stand-in: those that CuPy and NumPy have, with CuPy's keywords and gaps."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from xp_audit import METHODS, UFUNC_KEYWORDS, keywords_of, tables

from strict_numpy.array import BFLOAT16, checked_type, ndarray, on_device, on_host

CONSTANTS = ("newaxis", "pi", "e", "inf", "nan", "euler_gamma")
FROM_HOST = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
SORTED = ("sort", "argsort", "lexsort", "partition", "argpartition")


def refuse_keywords(name: str, options: dict[str, Any], taken: set[str] | None) -> None:
    for option in options:
        if taken is not None and option not in taken:
            raise TypeError(f"{name}() got an unexpected keyword argument '{option}'")
    if options.get("dtype") is not None:
        checked_type(options["dtype"])
    if isinstance(options.get("out"), np.ndarray):
        raise TypeError("the argument 'out' must be an array of CuPy")


def has_bfloat16(values: Any) -> bool:
    return any(
        has_bfloat16(value) if isinstance(value, list | tuple) else getattr(value, "dtype", None) == BFLOAT16
        for value in values
    )


class UFunc:
    """`cupy.ufunc`: no `where`, and only some of the methods."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._compute = getattr(np, name)
        self.nin, self.nout, self.types = self._compute.nin, self._compute.nout, self._compute.types

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._run(self._compute, args, options)

    def _run(self, compute: Callable[..., Any], args: Any, options: dict[str, Any]) -> Any:
        refuse_keywords(self.__name__, options, UFUNC_KEYWORDS | {"axis", "keepdims"})
        made = compute(*map(on_host, args), **{k: on_host(v) for k, v in options.items()})
        return on_device(made) if options.get("out") is None else options["out"]

    def __getattr__(self, method: str) -> Any:
        if method not in tables()["ufunc"]:
            raise AttributeError(f"'cupy.ufunc' object has no attribute '{method}'")

        def call(*args: Any, **options: Any) -> Any:
            if self.__name__ not in METHODS.get(method, {self.__name__}):
                raise NotImplementedError(f"`{self.__name__}.{method}` is not supported yet")
            return self._run(getattr(self._compute, method), args, options)

        return call


def function(name: str, compute: Callable[..., Any], taken: set[str] | None, types: set[str]) -> Callable[..., Any]:
    """One of NumPy's functions, with the keywords and the element types that CuPy's takes."""

    def call(*args: Any, **options: Any) -> Any:
        refuse_keywords(name, options, taken)
        if bad := {a.dtype.char for a in args if isinstance(a, ndarray) and types and a.dtype.char not in types}:
            raise TypeError(f"{name}: dtype {bad.pop()} is not supported")
        if has_bfloat16(args):
            if name in SORTED:
                raise NotImplementedError("Sorting arrays with dtype 'bfloat16' is not supported")
            if name in ("cumsum", "cumprod"):
                raise RuntimeError(f"{name} of bfloat16 does not compile")
            if name in ("matmul", "einsum", "tensordot") and any(
                np.ndim(a) > 2 for a in args if isinstance(a, ndarray)
            ):
                raise TypeError("data type 'E' not understood")
        out = options.get("out")
        host = [on_host(a) for a in args]
        made = compute(*host, **{k: on_host(v) for k, v in options.items()})
        if name in ("where", "clip") and has_bfloat16(args):
            made = made.astype(np.float32)
        return on_device(made) if out is None else out

    return call


def from_host(name: str) -> Callable[..., Any]:
    """A function that copies arrays, lists and numbers of the host to the device."""

    def call(obj: Any, dtype: Any = None, copy: Any = None, order: Any = None, **options: Any) -> Any:
        if dtype is not None:
            checked_type(dtype)
        host = obj._host if isinstance(obj, ndarray) else np.array(inner(obj))
        layout = {"ascontiguousarray": "C", "asfortranarray": "F"}.get(name, order or "K")
        made = np.array(host, dtype, copy=True if name == "array" and copy is None else copy or None, order=layout)
        return obj if isinstance(obj, ndarray) and made is host else on_device(made)

    return call


def inner(value: Any) -> Any:
    """Lists with the stand-in's arrays as NumPy's."""
    if isinstance(value, list | tuple):
        return [inner(each) for each in value]
    return value._host if isinstance(value, ndarray) else value


def fill(module: ModuleType, source: Any, types: set[str]) -> None:
    for name, kind in tables()[module.__name__].items():
        theirs = getattr(source, name, None)
        if name in FROM_HOST:
            setattr(module, name, from_host(name))
        elif kind == "ufunc" and isinstance(theirs, np.ufunc):
            setattr(module, name, UFunc(name))
        elif kind.startswith("function") or kind == "ufunc":
            if theirs is not None:
                setattr(module, name, function(name, theirs, keywords_of(kind), types))
        elif kind.startswith("class") and theirs is not None:
            setattr(module, name, theirs)


def namespace() -> ModuleType:
    """The module `cupy` with `linalg` and `fft`, without `cuda`."""
    cupy, linalg, fft = (ModuleType(name) for name in ("cupy", "cupy.linalg", "cupy.fft"))
    fill(cupy, np, set())
    fill(linalg, np.linalg, set("?bBhHiIlLqQfdFD"))  # cuSOLVER has no halves
    fill(fft, np.fft, set("?bBhHiIlLqQefdFD"))
    linalg.LinAlgError = np.linalg.LinAlgError
    for name in CONSTANTS:
        setattr(cupy, name, getattr(np, name))
    cupy.linalg, cupy.fft, cupy.__version__ = linalg, fft, tables()["version"]
    cupy.take = lambda a, indices, axis=None, out=None: a.take(indices, axis, out)
    cupy.asnumpy = lambda a, stream=None, order="C", out=None: a.get(stream, order, out)
    cupy.get_array_module = lambda *args: cupy if any(isinstance(a, ndarray) for a in args) else np
    cupy.from_dlpack = lambda array: array if isinstance(array, ndarray) else on_device(np.from_dlpack(array))
    cupy.ufunc = UFunc
    return cupy
