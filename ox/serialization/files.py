"""Files that are written whole or not at all, and `save` / `load` without pickle; `load` reads others' weights, too:
safetensors files, and what `torch.save` wrote."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, BinaryIO
from zlib import crc32

import numpy as np

from ox.core.device import device as Device
from ox.core.tensor import is_tensor
from ox.dtypes import ALL, NARROW, DType, bfloat16
from ox.errors import ArgumentError, LoadError, WriteError
from ox.serialization.file_kinds import kind
from ox.serialization.safetensors import as_bytes, chunks
from ox.temporary_files import close, file_beside, lock

TRIES = 100  # to read a file that others replace
_KEY = "ox.tree"
_CHECKSUM = "ox.crc32"
# the element types of safetensors that tensors can have; a bool is a byte
_TYPES: dict[str, DType] = {
    **{f"{letter}{8 * t.itemsize}": t for t in ALL for letter in t.kind.upper() if letter in "FIU"},
    "BF16": bfloat16,
    "BOOL": np.dtype(np.uint8),
}
# what travels as its bits, because safetensors' NumPy loader does not know it
_BITS: dict[DType, type] = {bfloat16: np.uint16, **dict.fromkeys(NARROW, np.uint8)}
_FROM_BITS = {str(dtype): dtype for dtype in _BITS}
# what a hostile or half-written file can make of the lines that read it
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class StateDict(dict[str, Any]):
    """The `state_dict` of a module: a dict, and `_metadata` with the version of each module."""

    def __init__(self, *entries: Any, **named: Any) -> None:
        super().__init__(*entries, **named)
        self._metadata: dict[str, dict[str, Any]] = {}


def write_whole(
    path: str | os.PathLike[str], write: Callable[[Path], None], before: Callable[[], None] | None = None
) -> None:
    """Call `write` with a temporary name beside `path`, make it durable, and rename it into place.

    Whatever goes wrong, a file that was at `path` stays as it was. What a killed process left of an earlier try is
    removed.

    Args:
        before: called when the new file is durable, and about to take its name.

    Raises:
        WriteError: the system refuses, as the folder is not there or not writable, or the disk is full.
    """
    path = Path(path).resolve()  # a link stays, and what it points to is written
    if path.exists() and not path.is_file():
        raise WriteError(f"{path} was not written", got="it is there, and no regular file", hint="the name of a file")
    try:
        with file_beside(path) as temporary:
            mode = temporary.stat().st_mode
            write(temporary)
            handle = os.open(temporary, os.O_RDWR)
            try:
                lock(handle)  # `write` may have replaced the file
                os.fsync(handle)
                temporary.chmod(mode & 0o777)
                if before is not None:
                    before()
                os.replace(temporary, path)
            finally:
                close(handle)
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)  # the rename itself
            finally:
                os.close(directory)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(
            f"{path} was not written",
            got=error.strerror or str(error),
            hint="a folder that exists and can be written, with space left",
        ) from error


def save(obj: Any, f: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write nested dicts, lists and tuples of tensors, arrays, numbers, strings, bools, None as one safetensors file.

    Args:
        f: its path, or a file opened for writing bytes.

    Raises:
        ArgumentError: something else is inside, or it contains itself, with the place.
        WriteError: the file cannot be written.
    """
    if isinstance(f, (str, os.PathLike)):
        write_whole(f, writer(obj))
    else:
        f.writelines(_pieces(obj))


def writer(obj: Any) -> Callable[[Path], None]:
    """What `write_whole` calls to write the file of `save`."""
    pieces = _pieces(obj)

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            for piece in pieces:
                file.write(piece)

    return write


def _pieces(obj: Any) -> Iterator[bytes | memoryview]:
    """The bytes of the file that `obj` becomes."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    try:
        tree = json.dumps(_flatten(obj, arrays, "value"))
    except RecursionError:
        raise ArgumentError("ox.save cannot write a value that is nested too deep, or contains itself") from None
    return chunks(arrays, {_CHECKSUM: _checksum(tree, arrays.values()), _KEY: tree})


def _checksum(tree: str, arrays: Iterable[np.ndarray[Any, Any]]) -> str:
    """Of everything that a file holds, in the order of its tree."""
    value = crc32(tree.encode())
    for array in arrays:
        value = crc32(as_bytes(array), value)
    return f"{value:08x}"


def load(
    f: str | os.PathLike[str] | IO[bytes],
    map_location: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
) -> Any:
    """Read what `save` wrote, a safetensors file of another program, such as the weights that PyTorch programs share (a
    dict from name to tensor, for `Module.load_state_dict`), or a `.pt` file of `torch.save` that holds weights and
    plain values. Nothing in the file is executed. `torch.load`.

    Args:
        f: its path, or a file opened for reading bytes.
        map_location: the device that the tensors go to, or a dict from where they were saved to where they go; None or
            a function of PyTorch's storages: the CPU.
        weights_only: there is never more than weights and plain values; False would need more than a file of
            `torch.save` gives here.
        mmap: tensors of a file of `torch.save` are read when they are touched.

    Raises:
        LoadError: the file is missing, damaged, of another kind, has an element type that ox has not, or is a pickle
            that would call more than makes tensors, containers, numbers and strings.
    """
    if isinstance(f, (str, os.PathLike)):
        return _load(os.fspath(f), map_location, weights_only, bool(mmap))
    with NamedTemporaryFile() as copy:  # the readers want a name
        shutil.copyfileobj(f, copy)
        copy.flush()
        return _load(copy.name, map_location, weights_only, bool(mmap))


def _load(path: str, map_location: Any, weights_only: bool | None, mapped: bool) -> Any:
    from ox.serialization.torch_checkpoint import is_torch_checkpoint, read

    device = Device(map_location) if isinstance(map_location, str) and map_location != "cpu" else None
    try:
        foreign = is_torch_checkpoint(path)
    except OSError as error:
        raise LoadError(f"{path} cannot be opened", got=error.strerror or str(error)) from error
    if not foreign:
        return _read(path, device)
    if weights_only is False:
        raise LoadError(
            f"{path} is not read with weights_only=False",
            got="a pickle, which that would let run its author's code",
            hint="ox.load without it: weights, numbers, strings and containers of them are read, and nothing runs",
        )

    moves = {str(k): Device(v) for k, v in map_location.items()} if isinstance(map_location, dict) else {}

    def place(tensor: Any, location: str) -> Any:
        goal = moves.get(location, device)
        return tensor if goal in (None, "cpu") else tensor.to(goal)

    return read(path, place, mapped)


def _read(path: str, device: str | None) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        for _ in range(TRIES):
            # Another process may rename a new file to this path at any time. The library checks a header; the bytes are
            # read through the other handle, if both have the same file.
            with safe_open(path, framework="numpy") as f, open(path, "rb") as file:
                about, arrays = f.metadata() or {}, _Arrays(path, file)
                if arrays.about != about:
                    continue
                if _KEY not in about and _CHECKSUM not in about:
                    return _load_foreign_file(arrays, list(f.keys()), device)
                return _load_ox_file(arrays, device)
        raise LoadError(
            f"{path} cannot be read",
            got=f"another file in each of {TRIES} tries",
            hint="another process replaces it all the time: load it when that has ended",
        )
    except LoadError:
        raise
    except OSError as error:
        raise LoadError(f"{path} cannot be opened", got=error.strerror or str(error)) from error
    except MemoryError as error:
        raise LoadError(f"{path} does not fit into memory", got=str(error) or None) from error
    except (SafetensorError, *_DAMAGE) as error:
        got, hint = kind(path)
        raise LoadError(
            f"{path} cannot be read",
            expected="a safetensors file, or what torch.save writes",
            got=got,
            hint=hint,
        ) from error


class _Arrays:
    """The arrays of a file whose header has been checked, and the checksum of those that were read.

    The library's NumPy reader has no bfloat16 and panics without enough memory: the bytes are read here.
    """

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path, self._file = path, file
        length = int.from_bytes(file.read(8), "little")
        self._entries = json.loads(file.read(length))
        self.about: dict[str, str] = self._entries.get("__metadata__") or {}
        self.sum = crc32(self.about.get(_KEY, "").encode())
        self._data = 8 + length

    def read(self, name: str) -> np.ndarray[Any, Any]:
        entry = self._entries[name]
        if entry["dtype"] not in _TYPES:
            raise LoadError(
                f"{self.path} has tensors of a type that ox has not",
                where=name,
                expected=", ".join(_TYPES),
                got=entry["dtype"],
            )
        begin, shape = self._data + entry["data_offsets"][0], entry["shape"]
        self._file.seek(begin)
        array = np.fromfile(self._file, _TYPES[entry["dtype"]], prod(shape)).reshape(shape)
        self.sum = crc32(as_bytes(array), self.sum)
        return array != 0 if entry["dtype"] == "BOOL" else array


def _load_ox_file(arrays: _Arrays, device: str | None) -> Any:
    """What `save` wrote; files of earlier versions have no checksum."""
    about = arrays.about
    value = _unflatten(json.loads(about[_KEY]), arrays, device)
    if about.get(_CHECKSUM, f"{arrays.sum:08x}") != f"{arrays.sum:08x}":
        raise LoadError(
            f"{arrays.path} is damaged",
            expected=f"the checksum {about[_CHECKSUM]}, which was noted when it was written",
            got=f"{arrays.sum:08x}",
            hint="an earlier checkpoint, or another copy",
        )
    return value


def has_checksum(path: str | os.PathLike[str]) -> bool:
    """Whether a file that can be read was written with a checksum."""
    from safetensors import safe_open

    with safe_open(os.fspath(path), framework="numpy") as f:
        return _CHECKSUM in (f.metadata() or {})


def _load_foreign_file(arrays: _Arrays, names: list[str], device: str | None) -> dict[str, Any]:
    """The tensors of a file that another program wrote, by name."""
    from ox.tensors.tensor import make_tensor

    tensors = {name: make_tensor(arrays.read(name)) for name in names}
    return tensors if device is None else {name: tensor.to(device) for name, tensor in tensors.items()}


def _flatten(value: Any, arrays: dict[str, np.ndarray[Any, Any]], where: str) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        # JSON has no infinities; hex keeps every bit of a float
        return {"float": value.hex()} if isinstance(value, float) else int(value)
    if isinstance(value, np.generic) and isinstance(value.item(), (bool, int, float, str)):
        return _flatten(value.item(), arrays, where)
    if isinstance(value, (list, tuple)):
        return {
            type(value).__name__ if type(value) in (list, tuple) else "tuple": [
                _flatten(v, arrays, f"{where}[{i}]") for i, v in enumerate(value)
            ]
        }
    if isinstance(value, dict):
        entries = [[_flatten(k, arrays, where), _flatten(v, arrays, f"{where}[{k!r}]")] for k, v in value.items()]
        if isinstance(value, StateDict):
            return {"state_dict": [entries, _flatten(value._metadata, arrays, where)]}
        return {"dict": entries}
    if getattr(value, "is_sparse", False):
        parts = (value._indices(), value._values(), tuple(value.shape), value.is_coalesced())
        return {"sparse": _flatten(parts, arrays, where)}
    kind = "tensor" if is_tensor(value) else "array"
    array = value.detach().cpu().array if kind == "tensor" else value
    if not isinstance(array, np.ndarray) or array.dtype not in (*ALL, *NARROW):
        what = (
            f"an array of {array.dtype}" if isinstance(array, np.ndarray) else f"values of type {type(value).__name__}"
        )
        raise ArgumentError(
            f"ox.save cannot write {what}",
            where=where,
            expected="dicts, lists and tuples of tensors, arrays, numbers, strings, bools and None",
            hint="model.state_dict() instead of the model" if hasattr(value, "state_dict") else None,
        )
    name = _name(where, arrays)
    arrays[name] = np.ascontiguousarray(array).view(_BITS.get(array.dtype, array.dtype))
    return {kind: [name, str(array.dtype), list(array.shape)]}


def _name(where: str, taken: dict[str, Any]) -> str:
    """The array's keys joined by slashes, so that other readers of the file find what they know: a saved state_dict
    has its own names."""
    name = where.removeprefix("value").replace("][", "/").strip("[]").replace("'", "") or "value"
    return name if name not in taken and name != "__metadata__" else f"{name}#{len(taken)}"


def _unflatten(tree: Any, arrays: _Arrays, device: str | None) -> Any:
    if tree is None or isinstance(tree, (bool, int, str)):
        return tree
    ((kind, content),) = tree.items()
    if kind == "float":
        return float.fromhex(content)
    if kind in ("list", "tuple"):
        values = [_unflatten(v, arrays, device) for v in content]
        return values if kind == "list" else tuple(values)
    if kind == "dict":
        return {_unflatten(k, arrays, device): _unflatten(v, arrays, device) for k, v in content}
    if kind == "state_dict":
        entries, metadata = content
        state = StateDict(_unflatten({"dict": entries}, arrays, device))
        state._metadata = _unflatten(metadata, arrays, device)
        return state
    if kind == "sparse":
        from ox.sparse.creation import of_file

        return of_file(*_unflatten(content, arrays, device))
    if kind not in ("tensor", "array"):
        raise ValueError(f"an unknown kind '{kind}'")
    name, dtype, shape = content
    array = arrays.read(name)
    if (narrow := _FROM_BITS.get(dtype)) is not None and array.dtype == _BITS[narrow]:
        array = array.view(narrow)
    if array.dtype != dtype or array.size != prod(shape):
        raise ValueError(f"tensor {name} is {array.dtype} {list(array.shape)}, not {dtype} {shape}")
    array = array.reshape(shape)
    if kind == "array":
        return array
    from ox.tensors.tensor import make_tensor

    return make_tensor(array) if device is None else make_tensor(array).to(device)
