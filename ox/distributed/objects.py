"""Collectives of Python values: numbers, strings, containers of them, arrays and tensors. Nothing is pickled.

A value is sent as JSON followed by the bytes of its arrays, so a rank can receive only data, never code.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ox.distributed.process_group import ProcessGroup
from ox.distributed.world import get_group_rank, resolve
from ox.dtypes import ALL
from ox.errors import ArgumentError, LoadError
from ox.tensors.tensor import Tensor, make_tensor

DTYPES = {dtype.name: dtype for dtype in ALL}


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Let `object_list`, as long as the group, become the ranks' values. `torch.distributed.all_gather_object`.

    Raises:
        ArgumentError: a value that is no number, string, bytes, None, array, tensor, nor a container of those.
    """
    chosen = resolve(group)
    _length(object_list, chosen.size())
    for i, text in enumerate(_all_gather_bytes(chosen, encode(obj), "all_gather_object")):
        object_list[i] = decode(text)


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0, group: Any = None) -> None:
    """Let `object_gather_list` of rank `dst` become the ranks' values. `torch.distributed.gather_object`."""
    chosen = resolve(group)
    here = chosen.rank() == get_group_rank(group, dst)
    if here:
        _length(object_gather_list, chosen.size())
    texts = _all_gather_bytes(chosen, encode(obj), f"gather_object to rank {dst}")
    if here and object_gather_list is not None:
        object_gather_list[:] = [decode(text) for text in texts]


def broadcast_object_list(object_list: list[Any], src: int = 0, group: Any = None, device: Any = None) -> None:
    """Let the values of `object_list` become those of rank `src`. `torch.distributed.broadcast_object_list`."""
    chosen = resolve(group)
    root = get_group_rank(group, src)
    text = encode(list(object_list)) if chosen.rank() == root else b""
    received = decode(_broadcast_bytes(chosen, text, root, f"broadcast_object_list from rank {src}"))
    _length(object_list, len(received))
    object_list[:] = received


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int = 0,
    group: Any = None,
) -> None:  # fmt: skip
    """Let the first of `scatter_object_output_list` become this rank's of rank `src`'s values.

    `torch.distributed.scatter_object_list`.
    """
    chosen = resolve(group)
    root = get_group_rank(group, src)
    text = b""
    if chosen.rank() == root:
        _length(scatter_object_input_list, chosen.size())
        text = encode(list(scatter_object_input_list or ()))
    received = decode(_broadcast_bytes(chosen, text, root, f"scatter_object_list from rank {src}"))
    scatter_object_output_list[:1] = [received[chosen.rank()]]


def _all_gather_bytes(group: ProcessGroup, text: bytes, name: str) -> list[bytes]:
    """The bytes of all ranks: gathers their lengths, then the bytes padded to the longest."""
    backend = group.backend
    lengths = backend.empty((group.size(), 1), np.int64)
    mine = backend.put(np.array([len(text)], np.int64))
    group.start(name, lambda: backend.all_gather(lengths, mine))
    sizes = backend.fetch(lengths)[:, 0]
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(text)] = np.frombuffer(text, np.uint8)
    texts, own = backend.empty((group.size(), len(padded)), np.uint8), backend.put(padded)
    group.start(name, lambda: backend.all_gather(texts, own))
    return [row[:size].tobytes() for row, size in zip(backend.fetch(texts), sizes, strict=True)]


def _broadcast_bytes(group: ProcessGroup, text: bytes, root: int, name: str) -> bytes:
    """The bytes of rank `root`: broadcasts their length, then the bytes."""
    backend = group.backend
    length = backend.put(np.array([len(text)], np.int64))
    group.start(name, lambda: backend.broadcast(length, root))
    content = np.zeros(int(backend.fetch(length)[0]), np.uint8)
    if group.rank() == root:
        content[:] = np.frombuffer(text, np.uint8)
    moved = backend.put(content)
    group.start(name, lambda: backend.broadcast(moved, root))
    return bytes(backend.fetch(moved).tobytes())


def _length(values: Any, size: int) -> None:
    if not isinstance(values, list) or len(values) != size:
        got = f"{len(values)} values" if isinstance(values, list) else type(values).__name__
        raise ArgumentError("a list of the right length is needed", expected=f"{size} values",
                            got=got, hint=f"[None] * {size}")  # fmt: skip


# -- values as bytes ---------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """`value` as the length of a JSON text, the text, and the bytes of its arrays."""
    blobs: list[bytes] = []

    def coded(x: Any) -> Any:
        if x is None or isinstance(x, bool | int | float | str):
            return x
        if isinstance(x, bytes):
            blobs.append(x)
            return ["bytes", len(x)]
        if isinstance(x, list | tuple):
            return ["list" if isinstance(x, list) else "tuple", *map(coded, x)]
        if isinstance(x, dict):
            return ["dict", *([coded(key), coded(item)] for key, item in x.items())]
        if isinstance(x, Tensor):
            array = np.asarray(x.detach().cpu().array)
        elif isinstance(x, np.ndarray | np.generic):
            array = np.asarray(x)
        else:
            array = np.empty(0, object)
        if array.dtype.name not in DTYPES:
            raise ArgumentError(
                "only data travels between ranks", got=type(x).__name__,
                expected="numbers, strings, bytes, None, arrays, tensors, and lists, tuples, dicts of them",
            )  # fmt: skip
        blobs.append(array.tobytes())
        return ["tensor" if isinstance(x, Tensor) else "array", array.dtype.name, list(array.shape)]

    text = json.dumps(coded(value)).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *blobs])


def decode(data: bytes) -> Any:
    """What `encode` was given. Raises LoadError for bytes that it did not make."""
    end = 8 + int.from_bytes(data[:8], "little")
    place = end

    def read(size: int) -> bytes:
        nonlocal place
        if size < 0 or place + size > len(data):
            raise LoadError("a message is shorter than it says")
        place += size
        return data[place - size : place]

    def value(x: Any) -> Any:
        if not isinstance(x, list):
            return x
        kind, *rest = x
        if kind == "bytes":
            return read(rest[0])
        if kind in ("list", "tuple"):
            made = [value(item) for item in rest]
            return made if kind == "list" else tuple(made)
        if kind == "dict":
            return {value(key): value(item) for key, item in rest}
        dtype, shape = DTYPES[rest[0]], rest[1]
        array = np.frombuffer(read(dtype.itemsize * int(np.prod(shape, dtype=np.int64))), dtype).reshape(shape).copy()
        return make_tensor(array) if kind == "tensor" else array

    try:
        return value(json.loads(data[8:end]))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise error if isinstance(error, LoadError) else LoadError(f"a message is damaged: {error}") from error
