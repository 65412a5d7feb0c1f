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
from ox.dtypes import ALL, DType, bfloat16
from ox.errors import ArgumentError, LoadError, WriteError, cannot_open
from ox.serialization.file_kinds import kind
from ox.serialization.safetensors import as_bytes, chunks
from ox.serialization.value_tree import StateDict as StateDict
from ox.serialization.value_tree import TreeReader, TreeWriter
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
# what a hostile or half-written file can make of the lines that read it
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


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
    path = _destination(Path(path))
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
            if hasattr(os, "O_DIRECTORY"):  # on Windows no folder can be opened
                directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
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


def _destination(path: Path) -> Path:
    """The file that is written: what a link points to, so that the link stays. But the blobs of the Hugging Face cache
    are named by their content and shared by revisions, so a link to one of them becomes a file itself."""
    target = written = path.resolve()
    if target.parent.name == "blobs" and (target.parent.parent / "snapshots").is_dir():
        while path.is_symlink():
            written = path.parent.resolve() / path.name
            path = written.parent / path.readlink()
    return written


def save(obj: Any, f: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write tensors, arrays, numbers, strings and containers of them as one safetensors file. `torch.save`.

    Containers are dicts (also OrderedDict, defaultdict, Counter), lists, tuples, sets, deques, `argparse.Namespace` and
    `SimpleNamespace`. Single values are also None, bools, bytes, complex numbers, ranges, slices, dates and times,
    paths, devices, element types and sizes. Tensors that share memory share it when they are loaded, and one that
    requires a gradient, or is a Parameter, still does or is. Nothing in the file is code.

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
    values = TreeWriter()
    try:
        tree = json.dumps(values.write(obj))
    except RecursionError:
        raise ArgumentError("ox.save cannot write a value that is nested too deep, or contains itself") from None
    return chunks(values.arrays, {_CHECKSUM: _checksum(tree, values.arrays.values()), _KEY: tree})


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
        raise cannot_open(path, error) from error
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
        raise cannot_open(path, error) from error
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
        self._entries = json.loads(file.read(length), object_pairs_hook=_unique)
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError for a name that stands in it twice: readers take one or the other."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a name stands twice in the header")
    return entries


def _load_ox_file(arrays: _Arrays, device: str | None) -> Any:
    """What `save` wrote; files of earlier versions have no checksum."""
    about = arrays.about
    value = TreeReader(arrays.read, device).read(json.loads(about[_KEY]))
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
