"""A value as a tree of JSON beside arrays, and back: what `ox.save` writes and `ox.load` reads."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from enum import Enum
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import SimpleNamespace
from typing import Any

import numpy as np

from ox.core.device import device as Device
from ox.core.memory_format import address, layout
from ox.core.size import Size
from ox.core.tensor import is_tensor
from ox.devices import cpu
from ox.dtypes import ALL, NARROW, DType, bfloat16
from ox.errors import ArgumentError
from ox.serialization.parameters import is_parameter, parameter
from ox.tensors.storages import relate, shared_storages, view_of
from ox.tensors.tensor import Tensor, make_tensor

Array = np.ndarray[Any, Any]

# what travels as its bits, because safetensors' NumPy loader does not know it
_BITS: dict[DType, type] = {bfloat16: np.uint16, **dict.fromkeys(NARROW, np.uint8)}
_DTYPES: dict[str, DType] = {str(dtype): dtype for dtype in (*ALL, *NARROW)}
_AS_BYTES = "cSUmM"  # kinds of arrays that only NumPy has: complex numbers, strings, times
_FACTORIES: dict[str, Any] = {t.__name__: t for t in (int, float, complex, str, bool, list, dict, set, tuple)}


class StateDict(dict[str, Any]):
    """The `state_dict` of a module: a dict, and `_metadata` with the version of each module."""

    def __init__(self, *entries: Any, **named: Any) -> None:
        super().__init__(*entries, **named)
        self._metadata: dict[str, dict[str, Any]] = {}


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("not a string")
    return value


def _numbers(values: Any, *others: Any) -> list[Any]:
    if not all(type(n) is int or n in others for n in values):
        raise ValueError("not whole numbers")
    return list(values)


def _dtype(name: Any) -> DType:
    if name in _DTYPES:
        return _DTYPES[name]
    dtype = np.dtype(_text(name))
    if dtype.kind not in _AS_BYTES or not dtype.itemsize:
        raise ValueError(f"an unknown element type '{name}'")
    return dtype


def _scalar(dtype: Any, bits: Any) -> Any:
    return np.frombuffer(bytes.fromhex(bits), _dtype(dtype), 1)[0]


# values that hold no others: to JSON, and back
_PLAIN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "float": (float.hex, float.fromhex),  # JSON has no infinities; hex keeps every bit
    "complex": (lambda z: [z.real.hex(), z.imag.hex()], lambda parts: complex(*map(float.fromhex, parts))),
    "bytes": (bytes.hex, bytes.fromhex),
    "bytearray": (bytearray.hex, bytearray.fromhex),
    "range": (lambda r: [r.start, r.stop, r.step], lambda ends: range(*_numbers(ends))),
    "slice": (lambda s: [s.start, s.stop, s.step], lambda ends: slice(*_numbers(ends, None))),
    "ellipsis": (lambda _: 0, lambda _: ...),
    "timedelta": (lambda d: [d.days, d.seconds, d.microseconds], lambda parts: timedelta(*_numbers(parts))),
    "datetime": (datetime.isoformat, datetime.fromisoformat),
    "date": (date.isoformat, date.fromisoformat),
    "time": (time.isoformat, time.fromisoformat),
    "Size": (list, lambda sizes: Size(_numbers(sizes))),
    "device": (str, lambda name: Device(_text(name))),
    "Path": (str, lambda name: Path(_text(name))),
    "PurePosixPath": (str, lambda name: PurePosixPath(_text(name))),
    "PureWindowsPath": (str, lambda name: PureWindowsPath(_text(name))),
    "dtype": (str, lambda name: _DTYPES[name]),
    "scalar": (lambda n: [_name_of(n.dtype), n.tobytes().hex()], lambda parts: _scalar(*parts)),
}
_KINDS: dict[type, str] = {
    **{t: t.__name__ for t in (float, complex, bytes, bytearray, range, slice, timedelta, datetime, date, time, Size)},
    **{t: t.__name__ for t in (PurePosixPath, PureWindowsPath)},
    type(Path()): "Path",
    type(...): "ellipsis",
    Device: "device",
}


def _kind_of(value: Any) -> str | None:
    """The name in `_PLAIN` of a value, or None."""
    if isinstance(value, np.dtype):
        return "dtype" if str(value) in _DTYPES else None
    if isinstance(value, np.generic):
        return "scalar" if value.dtype in _DTYPES.values() or value.dtype.kind in _AS_BYTES else None
    if isinstance(value, slice):
        return "slice" if all(n is None or type(n) is int for n in (value.start, value.stop, value.step)) else None
    return _KINDS.get(type(value)) or ("float" if isinstance(value, float) else None)


def _name_of(dtype: DType) -> str:
    return str(dtype) if dtype in _DTYPES.values() else dtype.str


class TreeWriter:
    """Makes the tree of a value. `arrays` are what it refers to, by name: contiguous, in types of safetensors."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._notes: dict[int, tuple[Tensor, str, dict[str, Any]]] = {}  # of each tensor, by its id

    def write(self, value: Any) -> Any:
        """The tree. Raises ArgumentError for what is not stored, with its position."""
        tree = self._tree(value, "value")
        for number, storage in enumerate(shared_storages(tensor for tensor, _, _ in self._notes.values())):
            size = storage.end - storage.begin
            gaps = size > sum(tensor.array.nbytes for tensor in storage.sources)
            memory = self._add(f"storage {number}", cpu(storage.bytes())) if gaps else None
            for tensor in storage.sources:
                part = [address(tensor.array) - storage.begin, list(layout(tensor.array).strides)]
                self._notes[id(tensor)][2]["storage"] = [number, size, memory, *part]
        return tree

    def _tree(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, bool) or (isinstance(value, str) and type(value) is not Device):
            return value
        if isinstance(value, int):
            return int(value)
        kind = _kind_of(value)
        if kind is not None:
            return {kind: _PLAIN[kind][0](value)}
        if isinstance(value, dict):
            return self._dict(value, where)
        if isinstance(value, (list, tuple)):
            return {"list" if type(value) is list else "tuple": self._values(value, where)}
        if type(value) in (set, frozenset):
            return {type(value).__name__: sorted(self._values(value, where), key=json.dumps)}
        if type(value) is deque:
            return {"deque": [self._values(value, where), value.maxlen]}
        if type(value) in (Namespace, SimpleNamespace):
            return {type(value).__name__: self._entries(vars(value), where)}
        if getattr(value, "is_sparse", False):
            parts = (value._indices(), value._values(), tuple(value.shape), value.is_coalesced())
            return {"sparse": self._tree(parts, where)}
        if is_tensor(value):
            return {"tensor": self._tensor(value, where)}
        if isinstance(value, np.ndarray) and (value.dtype in _DTYPES.values() or value.dtype.kind in _AS_BYTES):
            return {"array": self._array(value, where)}
        raise _unwritable(value, where)

    def _values(self, values: Any, where: str) -> list[Any]:
        return [self._tree(value, f"{where}[{i}]") for i, value in enumerate(values)]

    def _entries(self, value: Mapping[Any, Any], where: str) -> list[Any]:
        return [[self._tree(k, where), self._tree(v, f"{where}[{k!r}]")] for k, v in value.items()]

    def _dict(self, value: dict[Any, Any], where: str) -> Any:
        entries = self._entries(value, where)
        if isinstance(value, StateDict):
            return {"state_dict": [entries, self._tree(value._metadata, where)]}
        if type(value) is defaultdict:
            factory = value.default_factory
            name = next((name for name, each in _FACTORIES.items() if each is factory), None)
            if name is None and factory is not None:
                raise ArgumentError(
                    "ox.save cannot write a defaultdict with a function of its own",
                    where=where,
                    expected="one of " + ", ".join(_FACTORIES),
                    got=repr(factory),
                    hint="dict(value)",
                )
            return {"defaultdict": [name, entries]}
        return {type(value).__name__ if type(value) in (OrderedDict, Counter) else "dict": entries}

    def _array(self, array: Array, where: str) -> list[Any]:
        """Name, element type and shape; the array itself is put aside."""
        return [self._add(where, array), _name_of(array.dtype), list(array.shape)]

    def _add(self, where: str, array: Array) -> str:
        """Put an array aside under its keys, joined by slashes, so that other readers of the file find what they know:
        a saved state_dict has its own names."""
        name = where.removeprefix("value").replace("][", "/").strip("[]").replace("'", "") or "value"
        if name in self.arrays or name == "__metadata__":
            name = f"{name}#{len(self.arrays)}"
        bits = _BITS.get(array.dtype, array.dtype if array.dtype in _DTYPES.values() else np.uint8)
        self.arrays[name] = np.ascontiguousarray(array).view(bits)
        return name

    def _tensor(self, tensor: Tensor, where: str) -> list[Any]:
        content = self._array(tensor.detach().cpu().array, where)
        notes: dict[str, Any] = {}
        if id(tensor) in self._notes:
            return [*content, {"same": self._notes[id(tensor)][1]}]
        self._notes[id(tensor)] = tensor, content[0], notes
        if is_parameter(tensor):
            notes["parameter"] = tensor.requires_grad
        elif tensor.requires_grad:
            notes["requires_grad"] = True
        return [*content, notes]


def _unwritable(value: Any, where: str) -> ArgumentError:
    array = isinstance(value, np.ndarray)
    hint = None
    if hasattr(value, "state_dict"):
        hint = "model.state_dict() instead of the model"
    elif isinstance(value, Enum):
        hint = "value.name or value.value"
    elif is_dataclass(value):
        hint = "dataclasses.asdict(value)"
    return ArgumentError(
        f"ox.save cannot write {f'an array of {value.dtype}' if array else f'values of type {type(value).__name__}'}",
        where=where,
        expected="tensors, arrays, numbers, strings, dates, paths, None and containers of them",
        hint=hint,
    )


class TreeReader:
    """Makes the value of a tree again. Nothing that the tree names is called, but the types in this module.

    Args:
        array: gives the array of a name.
        device: where tensors go; None: the CPU.

    What does not fit raises one of the errors of Python that damaged data raise.
    """

    def __init__(self, array: Callable[[str], Array], device: str | None) -> None:
        self._array_of, self._device = array, device
        self._tensors: dict[str, Tensor] = {}
        self._storages: dict[int, list[tuple[Tensor, Array, list[Any]]]] = {}

    def read(self, tree: Any) -> Any:
        """The value."""
        value = self._value(tree)
        for _, members in sorted(self._storages.items()):
            self._share(members)
        return value

    def _value(self, tree: Any) -> Any:
        if tree is None or isinstance(tree, (bool, int, str)):
            return tree
        ((kind, content),) = tree.items()
        if kind in _PLAIN:
            return _PLAIN[kind][1](content)
        if kind in _CONTAINERS:
            return _CONTAINERS[kind]([self._value(each) for each in content])
        if kind in _MAPPINGS:
            return _MAPPINGS[kind](self._entries(content))
        if kind == "deque":
            values, most = content
            return deque([self._value(each) for each in values], most)
        if kind == "defaultdict":
            factory, entries = content
            return defaultdict(None if factory is None else _FACTORIES[factory], self._entries(entries))
        if kind == "state_dict":
            entries, metadata = content
            state = StateDict(self._entries(entries))
            state._metadata = self._value(metadata)
            return state
        if kind == "sparse":
            from ox.sparse.creation import of_file

            return of_file(*self._value(content))
        if kind == "array":
            return self._array(*content)
        if kind == "tensor":
            return self._tensor(*content)
        raise ValueError(f"an unknown kind '{kind}'")

    def _entries(self, entries: Any) -> dict[Any, Any]:
        return {self._value(key): self._value(value) for key, value in entries}

    def _array(self, name: str, dtype: str, shape: list[int]) -> Array:
        array, wanted = self._array_of(name), _dtype(dtype)
        bits = _BITS.get(wanted) if wanted in _DTYPES.values() else np.uint8
        if bits is not None and array.dtype == bits:
            array = array.view(wanted)
        if array.dtype != wanted or array.size != prod(shape):
            raise ValueError(f"tensor {name} is {array.dtype} {list(array.shape)}, not {dtype} {shape}")
        return array.reshape(shape)

    def _tensor(self, name: str, dtype: str, shape: list[int], notes: Any = None) -> Tensor:
        array, notes = self._array(name, dtype, shape), notes or {}
        if "same" in notes:
            return self._tensors[notes["same"]]
        tensor = make_tensor(array)
        if self._device is not None:
            tensor = tensor.to(self._device)
        if "parameter" in notes:
            tensor = parameter(tensor, notes["parameter"] is True)
        elif notes.get("requires_grad") is True:
            tensor.requires_grad_()
        self._tensors[name] = tensor
        if "storage" in notes:
            number, *part = notes["storage"]
            self._storages.setdefault(number, []).append((tensor, array, part))
        return tensor

    def _share(self, members: list[tuple[Tensor, Array, list[Any]]]) -> None:
        """Let tensors show one memory, as those did that were saved."""
        size, name = members[0][2][:2]
        if name is None and size > sum(array.nbytes for _, array, _ in members):
            raise ValueError(f"{size} bytes are more than their tensors have")
        memory = np.zeros(size, np.uint8) if name is None else self._array_of(name)
        parts = []
        for _, array, (*_, offset, strides) in members:
            steps = [step * array.itemsize for step in strides]
            view: Array = np.ndarray(array.shape, array.dtype, memory, offset, steps)  # refuses what reaches outside
            view[...] = array
            parts.append((view, offset))
        buffer = memory if self._device is None else make_tensor(memory).to(self._device).array
        roots: dict[Any, Any] = {}
        for (tensor, _, _), (view, offset) in zip(members, parts, strict=True):
            tensor.array = view_of(buffer, view, offset)
            relate(tensor, buffer, roots)


def _namespace(kind: Any) -> Callable[[dict[Any, Any]], Any]:
    def made(entries: dict[Any, Any]) -> Any:
        value = kind()
        vars(value).update({_text(name): each for name, each in entries.items()})
        return value

    return made


_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_MAPPINGS: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": Counter,
    "Namespace": _namespace(Namespace),
    "SimpleNamespace": _namespace(SimpleNamespace),
}
