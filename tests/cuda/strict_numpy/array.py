"""`cupy.ndarray` of the stand-in: a NumPy array that no other NumPy array may meet."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np
from xp_audit import keywords_of, tables

from strict_numpy.device import Device, MemoryPointer

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {np.dtype(char) for char in "?bBhHiIlLqQefdFD"} | {BFLOAT16}
SCALARS = (int, float, complex, np.generic)
_alive: WeakValueDictionary[int, ndarray] = WeakValueDictionary()  # arrays of the stand-in, by the id of NumPy's inside
owner = ModuleType("cupy")  # install() puts the module here that NumPy's functions are sent to


def checked_type(dtype: Any) -> np.dtype[Any]:
    """The type. Raises ValueError for one that CuPy does not have."""
    if np.dtype(dtype) not in TYPES:
        raise ValueError(f"Unsupported dtype {np.dtype(dtype)}")
    return np.dtype(dtype)


def on_device(value: Any) -> Any:
    """NumPy's arrays and numbers as arrays of the stand-in, inside of tuples and lists, too."""
    if isinstance(value, np.ndarray | np.generic):
        made = object.__new__(ndarray)
        made._host = np.asarray(value)
        checked_type(made._host.dtype)
        made.base = _alive.get(id(made._host.base))
        _alive[id(made._host)] = made
        return made
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(on_device, value))
    return type(value)(map(on_device, value)) if isinstance(value, list | tuple) else value


def on_host(value: Any) -> Any:
    """What NumPy computes with. Raises TypeError for NumPy's own arrays, as CuPy does."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    return type(value)(map(on_host, value)) if type(value) in (list, tuple) else value


class Flags:
    """`ndarray.flags`: those that CuPy has."""

    def __init__(self, flags: Any) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = flags.c_contiguous, flags.f_contiguous, flags.owndata

    def __getitem__(self, name: str) -> bool:
        return bool(getattr(self, name.lower()))


class ndarray:
    """`cupy.ndarray`. Methods that are not written here are NumPy's, if CuPy has them."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]
    _host: np.ndarray[Any, Any]
    base: ndarray | None  # what a view is a part of

    def __new__(
        cls, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> ndarray:
        return on_device(np.empty(shape, checked_type(dtype), order=order))

    shape = property(lambda self: self._host.shape, lambda self, value: setattr(self._host, "shape", value))
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    strides = property(lambda self: self._host.strides)
    T = property(lambda self: on_device(self._host.T))
    mT = property(lambda self: on_device(self._host.mT))
    real = property(lambda self: on_device(self._host.real))
    imag = property(lambda self: on_device(self._host.imag))
    flags = property(lambda self: Flags(self._host.flags))
    data = property(lambda self: MemoryPointer(self._host))
    device = property(lambda self: Device())

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        if out is None:
            return np.array(self._host, order="K" if order == "A" else order)
        out[...] = self._host
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        self._host[...] = arr

    def item(self, *args: Any) -> Any:
        return self._host.item(*args)

    def tolist(self) -> Any:
        return self._host.tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        return self._host.tobytes(order)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __dlpack__(self, **options: Any) -> Any:
        return self._host.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0  # kDLCUDA

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._host.__array_interface__, "version": 3, "stream": 1}

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self._host)))

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __complex__(self) -> complex:
        return complex(self._host)

    def __repr__(self) -> str:
        return repr(self._host)

    def __format__(self, spec: str) -> str:
        return format(self._host, spec)

    def __copy__(self) -> ndarray:
        return on_device(self._host.copy())

    def __deepcopy__(self, memo: Any) -> ndarray:
        return on_device(self._host.copy())

    def __reduce__(self) -> Any:
        return on_device, (self._host,)

    def take(self, indices: Any, axis: Any = None, out: Any = None) -> ndarray:
        taken = np.take(self._host, on_host(indices), axis, on_host(out), mode="wrap")  # CuPy never raises
        return on_device(taken) if out is None else out

    def __getitem__(self, key: Any) -> ndarray:
        parts = key if isinstance(key, tuple) else (key,)
        parts = [part._host if isinstance(part, ndarray) else part for part in parts]
        if any(isinstance(part, np.ndarray | list) for part in parts):
            parts = wrapped(parts, self._host.shape)
        return on_device(self._host[tuple(parts)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        parts = key if isinstance(key, tuple) else (key,)
        parts = [part._host if isinstance(part, ndarray) else part for part in parts]
        self._host[tuple(parts)] = value._host if isinstance(value, ndarray) else value

    def scatter_add(self, slices: Any, value: Any) -> None:
        np.add.at(self._host, on_host(slices), on_host(value))

    def scatter_max(self, slices: Any, value: Any) -> None:
        np.maximum.at(self._host, on_host(slices), on_host(value))

    def scatter_min(self, slices: Any, value: Any) -> None:
        np.minimum.at(self._host, on_host(slices), on_host(value))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        own = getattr(owner, ufunc.__name__, None)
        if own is None:
            return NotImplemented
        if "out" in options:
            (options["out"],) = options["out"]
        return (own if method == "__call__" else getattr(own, method))(*inputs, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        module = owner
        for part in function.__module__.split(".")[1:]:
            module = getattr(module, part, None)
        own = getattr(module, function.__name__, None)
        return NotImplemented if own is None or set(types) != {ndarray} else own(*args, **options)


def wrapped(parts: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Indices with those outside of an axis moved around into it: CuPy raises no error for them."""
    masks = [isinstance(part, np.ndarray) and part.dtype == bool for part in parts]
    taken = [
        part.ndim if mask else part is not None and part is not ... for part, mask in zip(parts, masks, strict=True)
    ]
    axis, made = 0, []
    for part, mask, count in zip(parts, masks, taken, strict=True):
        if part is ...:
            count = len(shape) - sum(taken)
        elif isinstance(part, np.ndarray | list) and not mask and shape[axis]:
            part = np.asarray(part) if np.size(part) else np.zeros(np.shape(part), np.intp)
            part = part % shape[axis] if part.dtype.kind in "iu" else part
        made.append(part)
        axis += int(count)
    return made


def _binary(compute: Callable[[Any, Any], Any], reflected: bool) -> Callable[[ndarray, Any], Any]:
    def method(self: ndarray, other: Any) -> Any:
        if not isinstance(other, (ndarray, np.ndarray, *SCALARS)):
            return NotImplemented
        other = on_host(other)
        return on_device(compute(other, self._host) if reflected else compute(self._host, other))

    return method


def _in_place(compute: Callable[[Any, Any], Any]) -> Callable[[ndarray, Any], Any]:
    def method(self: ndarray, other: Any) -> Any:
        np.copyto(self._host, compute(self._host, on_host(other)), casting="same_kind")
        return self

    return method


def _unary(compute: Callable[[Any], Any]) -> Callable[[ndarray], Any]:
    return lambda self: on_device(compute(self._host))


def _method(name: str, taken: set[str] | None) -> Callable[..., Any]:
    def method(self: ndarray, *args: Any, **options: Any) -> Any:
        for option in options:
            if taken is not None and option not in taken:
                raise TypeError(f"{name}() got an unexpected keyword argument '{option}'")
        if name in ("astype", "view") and (dtype := args[0] if args else options.get("dtype")) is not None:
            checked_type(dtype)
        out = options.get("out")
        options = {option: on_host(value) for option, value in options.items()}
        made = getattr(self._host, name)(*map(on_host, args), **options)
        return on_device(made) if out is None else out

    return method


def _complete() -> None:
    """The operators, and the methods that CuPy and NumPy have."""
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "lshift",
        "rshift",
        "and_",
        "or_",
        "xor",
        "matmul",
    ):
        compute, bare = getattr(operator, name), name.rstrip("_")
        setattr(ndarray, f"__{bare}__", _binary(compute, False))
        setattr(ndarray, f"__r{bare}__", _binary(compute, True))
        setattr(ndarray, f"__i{bare}__", _in_place(compute))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(ndarray, f"__{name}__", _binary(getattr(operator, name), False))
    for name in ("neg", "pos", "abs", "invert"):
        setattr(ndarray, f"__{name}__", _unary(getattr(operator, name)))
    for name, kind in tables()["ndarray"].items():
        if kind.startswith("function") and name not in vars(ndarray) and hasattr(np.ndarray, name):
            setattr(ndarray, name, _method(name, keywords_of(kind)))


_complete()
