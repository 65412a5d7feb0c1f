"""Serializes a batch: nested values as JSON, arrays as references to their memory. Nothing is pickled."""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.errors import DTypeError
from ox.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]
Put = Callable[[Array], list[Any]]  # stores an array and returns a reference to it, as JSON
Get = Callable[[list[Any]], Array]  # the array of a reference
JSON_TYPES = frozenset({type(None), bool, int, float, str})


def pack(value: Any, put: Put, path: str = "batch") -> Any:
    """`value` as JSON, for `unpack`: scalars unchanged, everything else as a list that begins with its type.

    Raises:
        DTypeError: a type that cannot be serialized; names it and its position in the batch.
    """
    kind = type(value)
    if kind in JSON_TYPES:
        return value
    if isinstance(value, Tensor):
        return ["tensor", put(_checked_array(value.array, path))]
    if kind is np.ndarray:
        return ["array", put(_checked_array(value, path))]
    if isinstance(value, np.generic):
        return ["scalar", put(_checked_array(np.asarray(value), path))]
    if kind is list or kind is tuple:
        return [kind.__name__, *[pack(part, put, f"{path}[{i}]") for i, part in enumerate(value)]]
    if kind is dict and all(type(key) is str for key in value):
        return ["names", {key: pack(part, put, f"{path}[{key!r}]") for key, part in value.items()}]
    if kind is dict or kind is OrderedDict:
        pairs = [[pack(key, put, path), pack(part, put, f"{path}[{key!r}]")] for key, part in value.items()]
        return [kind.__name__, *pairs]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = [pack(part, put, f"{path}.{name}") for name, part in zip(value._fields, value, strict=True)]
        return ["namedtuple", *_class_name(kind), list(value._fields), *parts]
    if kind is bytes or kind is bytearray:
        return [kind.__name__, put(np.frombuffer(value, np.uint8))]
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and find_class(*_class_name(kind)) is kind:
        names = [field.name for field in dataclasses.fields(value)]
        parts = [pack(getattr(value, name), put, f"{path}.{name}") for name in names]
        return ["dataclass", *_class_name(kind), names, *parts]
    raise DTypeError(
        f"a worker cannot hand over {path}: {kind.__module__}.{kind.__qualname__}",
        expected="tensors, arrays, numbers, strings, bytes and None, in tuples, lists, dicts, named tuples and "
        "dataclasses of a module",
        got=f"{kind.__qualname__} (classes of one's own would have to be pickled)",
        hint="a dataclass, a collate_fn that gives its parts, or num_workers=0",
    )


def unpack(tree: Any, get: Get) -> Any:
    """The value that `pack` serialized."""
    if type(tree) is not list:
        return tree
    kind, *parts = tree
    if kind == "tensor":
        return make_tensor(get(parts[0]))
    if kind == "array":
        return get(parts[0])
    if kind == "scalar":
        return get(parts[0])[()]
    if kind == "list":
        return [unpack(part, get) for part in parts]
    if kind == "tuple":
        return tuple([unpack(part, get) for part in parts])
    if kind == "names":
        return {key: unpack(part, get) for key, part in parts[0].items()}
    if kind in ("dict", "OrderedDict"):
        made: Any = OrderedDict() if kind == "OrderedDict" else {}
        made.update((unpack(key, get), unpack(part, get)) for key, part in parts)
        return made
    if kind in ("bytes", "bytearray"):
        raw = get(parts[0]).tobytes()
        return raw if kind == "bytes" else bytearray(raw)
    module, name, fields, *parts = parts
    values = [unpack(part, get) for part in parts]
    if kind == "namedtuple":
        return _tuple_class(module, name, tuple(fields))(*values)
    instance = object.__new__(find_class(module, name))  # without __init__, which may compute or check the fields again
    for field, value in zip(fields, values, strict=True):
        object.__setattr__(instance, field, value)
    return instance


def _checked_array(array: Any, path: str) -> Array:
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"{path} lies on a GPU", expected="arrays in main memory", hint="copy batches in the loop")
    if array.dtype.hasobject or array.dtype.names:
        raise DTypeError(
            f"{path} is an array of {array.dtype}", expected="numbers, or strings of one length", hint="a list"
        )
    return array


def dtype_name(dtype: np.dtype[Any]) -> str:
    """A name from which `np.dtype` restores the type, with its byte order; types of ml_dtypes by their name."""
    return dtype.name if dtype.kind == "V" and dtype.itemsize <= 2 else dtype.str


def _class_name(kind: type) -> tuple[str, str]:
    # a spawned worker has the main script under another module name
    return ("__main__" if kind.__module__ == "__mp_main__" else kind.__module__), kind.__qualname__


def find_class(module: str, name: str) -> Any:
    """The class of this name in an imported module; None if there is none."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


@cache
def _tuple_class(module: str, name: str, fields: tuple[str, ...]) -> Any:
    """The class itself if its module has it, else an equivalent named tuple (for a class defined in a function)."""
    found = find_class(module, name)
    if found is not None and issubclass(found, tuple) and getattr(found, "_fields", None) == fields:
        return found
    return namedtuple(name.rpartition(".")[2], fields)


class Blob:
    """Small arrays, which are sent inside the message."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def put(self, array: Array) -> list[Any]:
        raw = array.tobytes()
        where = [-1, self.size, dtype_name(array.dtype), list(array.shape)]
        self.parts.append(raw + bytes(-len(raw) % 16))
        self.size += len(self.parts[-1])
        return where


def reader(blob: bytearray, bases: Mapping[int, Array] | None = None) -> Get:
    """A function that returns arrays of a message, from its own bytes or from shared memory."""
    own = np.frombuffer(blob, np.uint8) if blob else np.empty(0, np.uint8)

    def get(where: list[Any]) -> Array:
        segment, offset, dtype, shape = where
        base = own if segment < 0 or bases is None else bases[segment]
        return np.ndarray(shape, np.dtype(dtype), base, offset)

    return get
