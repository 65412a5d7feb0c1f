"""What `torch.save` wrote before PyTorch 1.6: five pickles in a row, and then the bytes of each storage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ox.serialization.torch_checkpoint.allowed_globals import find_global, size_of, storage_of
from ox.serialization.torch_checkpoint.errors import LONGEST_PICKLE, Budget, UnreadableError
from ox.serialization.torch_checkpoint.tensors import Storage, swapped
from ox.serialization.torch_checkpoint.unpickler import Unpickler

MAGIC = 0x1950A86A20F9469CFC6C
MAGIC_BYTES = b"\x8a\x0a" + MAGIC.to_bytes(10, "little") + b"."  # near the start: the protocol stands before it


def read_legacy(buffer: Any, bytes_at: Callable[[int, int], Any]) -> Any:
    """The value, with tensors to be.

    Args:
        buffer: the whole file, mapped.
        bytes_at: an offset and a size as a uint8 array.
    """
    storages: dict[str, Storage] = {}
    order = "little"

    def persistent(identity: Any) -> Storage:
        kind, key, location, count = storage_of(identity, legacy=True)
        size = size_of(kind, count)
        if key not in storages:
            storages[key] = Storage(key, size, kind.dtype, swapped(order), location, _nothing)
        if storages[key].size != size or storages[key].dtype != kind.dtype:
            raise UnreadableError(f"two different storages under the name {key!r}")
        return storages[key]

    budget, position, values = Budget(min(len(buffer), LONGEST_PICKLE)), 0, []
    for step in range(5):
        machine = Unpickler(buffer, find_global, persistent if step == 3 else _no_storage, budget, position)
        values.append(machine.load())
        position = machine.position
        if step == 2 and isinstance(values[2], dict) and values[2].get("little_endian") is False:
            order = "big"
    magic, _, _, value, keys = values
    if magic != MAGIC or not isinstance(keys, list):
        raise UnreadableError("a pickle that torch.save did not write")
    for key in keys:
        if type(key) is not str or key not in storages:
            raise UnreadableError("bytes of a storage that no tensor shows")
        position = _place(storages[key], buffer, position, order, bytes_at)
    missing = [key for key, storage in storages.items() if storage.read is _nothing]
    if missing:
        raise UnreadableError(f"a file without the bytes of {len(missing)} storages, {missing[0]!r} among them")
    return value


def _place(storage: Storage, buffer: Any, position: int, order: str, bytes_at: Callable[[int, int], Any]) -> int:
    """Note where the bytes of a storage lie: behind their number of elements."""
    if position + 8 > len(buffer):
        raise UnreadableError("a file that breaks off", hint="the whole file; this one is cut or damaged")
    (count,) = struct.unpack(">q" if order == "big" else "<q", buffer[position : position + 8])
    width = 1 if storage.dtype is None else storage.dtype.itemsize
    if count * width != storage.size:
        raise UnreadableError(f"storage {storage.key!r} with {count} elements in place of {storage.size // width}")
    begin = position + 8
    if begin + storage.size > len(buffer):
        raise UnreadableError("a file that breaks off", hint="the whole file; this one is cut or damaged")
    storage.read = lambda: bytes_at(begin, storage.size)
    return begin + storage.size


def _nothing() -> Any:
    raise AssertionError("placed before it is read")


def _no_storage(identity: Any) -> Any:
    raise UnreadableError("a persistent id outside the value")
