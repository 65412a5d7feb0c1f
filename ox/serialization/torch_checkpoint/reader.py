"""A file of `torch.save` as tensors and plain values."""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import IO, Any

import numpy as np

from ox.errors import LoadError, OxError, cannot_open
from ox.serialization.torch_checkpoint import archive
from ox.serialization.torch_checkpoint.allowed_globals import StorageType, find_global, size_of, storage_of
from ox.serialization.torch_checkpoint.errors import LONGEST_PICKLE, Budget, UnreadableError
from ox.serialization.torch_checkpoint.legacy import MAGIC_BYTES, read_legacy
from ox.serialization.torch_checkpoint.numpy_values import Array, Kind
from ox.serialization.torch_checkpoint.tensors import SparseSpec, Storage, TensorSpec, swapped
from ox.serialization.torch_checkpoint.unpickler import Allowed, Unpickler

_DEEPEST = 100
_MOST = 100_000_000  # values, those that several hold counted as often: so long is what prints or copies them
_ZIP = b"PK\x03\x04"
_EARLIER = "an earlier checkpoint, or the file anew from where it came"
# what a hostile or half-written file can make of the lines that read it
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error)


def is_torch_checkpoint(path: str) -> bool:
    """Whether a file begins as what `torch.save` writes: a zip archive, or before 1.6 a pickle; any pickle counts.

    A safetensors file begins with the length of its header, of 8 bytes, and an opening brace.
    """
    with open(path, "rb") as file:
        start = file.read(9)
    if start[4:] == b"\0\0\0\0{":
        return False
    return start.startswith(_ZIP) or start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def read(path: str, place: Callable[[Any, str], Any], mapped: bool = False) -> Any:
    """The value that was saved.

    Args:
        place: a tensor and the device that it was saved from give the tensor on its device.
        mapped: the tensors' memory is the file's: read when it is touched, and private to this process where written.

    Raises:
        LoadError: what is damaged, hostile, or more than weights and plain values.
    """
    try:
        with open(path, "rb") as file:
            return _Builder(place).make(_value(file, mapped), 0)
    except UnreadableError as error:
        raise LoadError(f"{path} cannot be read", expected=error.expected, got=error.got, hint=error.hint) from error
    except LoadError:
        raise
    except OSError as error:
        raise cannot_open(path, error) from error
    except MemoryError as error:
        raise LoadError(
            f"{path} does not fit into memory", got=f"{os.path.getsize(path):,} bytes", hint="mmap=True"
        ) from error
    except _DAMAGE as error:
        raise LoadError(
            f"{path} cannot be read",
            expected="what torch.save writes",
            got="a damaged file: its parts do not fit together",
            hint=_EARLIER,
        ) from error


def _value(file: IO[bytes], mapped: bool) -> Any:
    """What was saved, with tensors to be."""
    start = file.read(32)
    memory = None
    if mapped or not start.startswith(_ZIP):
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def bytes_at(offset: int, size: int) -> Any:
        if mapped and memory is not None:
            return np.frombuffer(memory, np.uint8, size, offset)
        file.seek(offset)
        raw = np.fromfile(file, np.uint8, size)
        if len(raw) != size:
            raise UnreadableError("a file that breaks off", hint="the whole file; this one is cut or damaged")
        return raw

    if start.startswith(_ZIP):
        return _archived(file, bytes_at, check=not mapped)
    if MAGIC_BYTES not in start:
        raise UnreadableError(
            "a pickle, which could run code, and none of torch.save", hint="torch.save, or a .safetensors file"
        )
    return read_legacy(memory, bytes_at)


def _archived(file: IO[bytes], bytes_at: Callable[[int, int], Any], check: bool) -> Any:
    entries = archive.entries(file)
    if "constants.pkl" in entries:
        raise UnreadableError(
            "a TorchScript archive, which is a program",
            hint="with PyTorch: torch.save(torch.jit.load(path).state_dict(), 'weights.pt')",
        )
    if "data.pkl" not in entries:
        raise UnreadableError("an archive without data.pkl, which torch.save did not write")
    storages: dict[str, Storage] = {}

    def content(name: str, checked: bool = True) -> Any:
        entry = entries[name]
        if not entry.stored:
            raise UnreadableError(
                f"an archive whose entry {name!r} is compressed or encrypted",
                expected="entries that are stored, as torch.save writes them",
                hint="unpack it, and pack it again with zip -0",
            )
        raw = bytes_at(entry.offset, entry.size)
        if checked and entry.crc and zlib.crc32(raw) != entry.crc:
            raise UnreadableError(f"a damaged file: {name} is not what was written (its checksum differs)")
        return raw

    def persistent(identity: Any) -> Storage:
        kind, key, location, count = storage_of(identity, legacy=False)
        name, size = f"data/{key}", size_of(kind, count)
        if name not in entries or entries[name].size != size:
            held = f"{entries[name].size} bytes" if name in entries else "none"
            raise UnreadableError(f"a storage {key!r} of {size} bytes, of which the archive holds {held}")
        if key not in storages:
            storages[key] = Storage(key, size, kind.dtype, order, location, lambda: content(name, check))
        if storages[key].dtype != kind.dtype:
            raise UnreadableError(f"two different storages under the name {key!r}")
        return storages[key]

    order = swapped(content("byteorder").tobytes().decode() if "byteorder" in entries else "little")
    if entries["data.pkl"].size > LONGEST_PICKLE:
        raise UnreadableError(f"a pickle of {entries['data.pkl'].size:,} bytes", expected=f"{LONGEST_PICKLE:,} at most")
    pickle = content("data.pkl").tobytes()
    return Unpickler(pickle, find_global, persistent, Budget(len(pickle))).load()


def _sparse(value: SparseSpec) -> Any:
    try:
        return value.tensor()
    except OxError as error:  # indices outside its size
        raise UnreadableError(f"a sparse tensor: {error.what}", expected=error.expected, hint=_EARLIER) from error


class _Builder:
    """Turns tensors to be into tensors, wherever they are in a value; a value that several hold stays one."""

    def __init__(self, place: Callable[[Any, str], Any]) -> None:
        self.place = place
        self.made: dict[int, Any] = {}
        self.inside: set[int] = set()
        self.count = 0
        self.counts: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is used twice

    def make(self, value: Any, depth: int) -> Any:
        kind = type(value)
        self.count += 1
        if kind in (str, bytes, int, float, bool, complex, type(None)):
            return value
        me = id(value)
        if me in self.inside:
            raise UnreadableError("a value that contains itself")
        if depth > _DEEPEST:
            raise UnreadableError("values that are nested too deep", expected=f"at most {_DEEPEST} in one another")
        if me not in self.made:
            before = self.count
            self.inside.add(me)
            self.made[me] = self._made(value, kind, depth + 1)
            self.inside.discard(me)
            self.kept.append(value)
            self.counts[me] = self.count - before
        else:
            self.count += self.counts[me]
        if self.count > _MOST:
            raise UnreadableError(f"values that hold one another more than {_MOST:,} times")
        return self.made[me]

    def _made(self, value: Any, kind: type, depth: int) -> Any:
        if kind is TensorSpec:
            return self.placed(value)
        if kind is SparseSpec:
            return self.place(_sparse(value), value.values.storage.location)
        if kind is Storage:
            raise UnreadableError("a storage without a tensor", hint="where it was saved: a tensor of it")
        if kind in (StorageType, Allowed):
            raise UnreadableError(f"{value.name} as a value", expected="tensors and plain values")
        if kind is Array:
            if value.array is None:
                raise UnreadableError("an array of NumPy that is none")
            return value.array
        if kind is Kind:
            return value.dtype
        if kind is list:
            value[:] = [self.make(item, depth) for item in value]
        elif kind is deque:
            items = [self.make(item, depth) for item in value]
            value.clear()
            value.extend(items)
        elif kind in (Namespace, SimpleNamespace):
            attributes = vars(value)
            for name in attributes:
                attributes[name] = self.make(attributes[name], depth)
        elif kind in (dict, OrderedDict, Counter, defaultdict):
            for key in value:
                value[key] = self.make(value[key], depth)
            if getattr(value, "_metadata", None) is not None:
                value.__dict__["_metadata"] = self.make(value._metadata, depth)
        elif kind is tuple:
            return tuple(self.make(item, depth) for item in value)
        return value

    def placed(self, value: TensorSpec) -> Any:
        """Once for each tensor, so that what is tied stays tied on another device, too."""
        tensor = value.tensor()
        me = id(tensor)
        if me not in self.made:
            self.made[me] = self.place(tensor, value.storage.location)
            self.kept.append(tensor)
        return self.made[me]
