"""Collectives of Python values: numbers, strings, containers of them, arrays and tensors. Nothing is pickled.

A value is sent as JSON followed by the bytes of its arrays, so a rank can receive only data, never code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ox.distributed.process_group import ProcessGroup
from ox.distributed.world import counts_failed_calls, get_group_rank, resolve
from ox.dtypes import ALL
from ox.errors import ArgumentError, LoadError
from ox.tensors.tensor import Tensor, make_tensor

DTYPES = {dtype.name: dtype for dtype in ALL}
TAG = 32_767  # of messages, the largest that every MPI has
PADDED = 1 << 20  # bytes in all up to which values of any sizes travel in one operation


@counts_failed_calls
def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Let `object_list`, as long as the group, become the ranks' values. `torch.distributed.all_gather_object`.

    Raises:
        ArgumentError: on all ranks, if one of them has a list of another length, or a value that is no number, string,
            bytes, None, array, tensor, nor a container of those.
    """
    chosen, name = resolve(group), "all_gather_object"
    own = _encoded(lambda: encode(obj), object_list, chosen.size())
    sizes = _all_gather_sizes(chosen, own, name)
    object_list[:] = [decode(data) for data in _all_gather_bytes(chosen, own.data, sizes, name)]


@counts_failed_calls
def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0, group: Any = None) -> None:
    """Let `object_gather_list` of rank `dst` become the ranks' values. `torch.distributed.gather_object`.

    A rank's value travels to rank `dst` only.

    Raises:
        ArgumentError: as in `all_gather_object`.
    """
    chosen, name = resolve(group), f"gather_object to rank {dst}"
    root = get_group_rank(group, dst)
    here = chosen.rank() == root
    own = _encoded(lambda: encode(obj), object_gather_list if here else [], chosen.size() if here else 0)
    sizes = _all_gather_sizes(chosen, own, name)
    backend = chosen.backend
    if here:
        parts = {rank: backend.empty((size,), np.uint8) for rank, size in enumerate(sizes) if rank != root}
        _move(chosen, name, [partial(backend.receive, part, rank, TAG) for rank, part in parts.items()])
        assert object_gather_list is not None  # its length was checked
        for rank in range(len(sizes)):
            object_gather_list[rank] = decode(own.data if rank == root else backend.fetch(parts.pop(rank)))
    else:
        _move(chosen, name, [partial(backend.send, backend.put(np.frombuffer(own.data, np.uint8)), root, TAG)])


@counts_failed_calls
def broadcast_object_list(object_list: list[Any], src: int = 0, group: Any = None, device: Any = None) -> None:
    """Let the values of `object_list` become those of rank `src`. `torch.distributed.broadcast_object_list`.

    Raises:
        ArgumentError: on all ranks, if rank `src` has a value that cannot be sent (`all_gather_object`); on one, if its
            list has another length.
    """
    chosen, name = resolve(group), f"broadcast_object_list from rank {src}"
    root = get_group_rank(group, src)
    here = chosen.rank() == root
    own = _encoded(lambda: encode(object_list), object_list, len(object_list)) if here else _Encoded(b"")
    (size,) = _broadcast_sizes(chosen, own, [len(own.data)], root, name)
    received = decode(_broadcast_bytes(chosen, own.data, size, root, name))
    _length(object_list, len(received))
    object_list[:] = received


@counts_failed_calls
def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int = 0,
    group: Any = None,
) -> None:  # fmt: skip
    """Let the first of `scatter_object_output_list` become this rank's of rank `src`'s values.

    `torch.distributed.scatter_object_list`. A value travels to its rank only.

    Raises:
        ArgumentError: on all ranks, if rank `src` has a value that cannot be sent (`all_gather_object`), or a list of
            another length.
    """
    chosen, name = resolve(group), f"scatter_object_list from rank {src}"
    root, backend = get_group_rank(group, src), chosen.backend
    parts: list[bytes] = []

    def encode_parts() -> bytes:
        parts[:] = map(encode, scatter_object_input_list or ())
        return b""

    here = chosen.rank() == root
    own = _encoded(encode_parts, scatter_object_input_list, chosen.size()) if here else _Encoded(b"")
    sizes = _broadcast_sizes(chosen, own, [*map(len, parts)] or [0] * chosen.size(), root, name)
    data: Any
    if here:
        sent = {rank: backend.put(np.frombuffer(part, np.uint8)) for rank, part in enumerate(parts) if rank != root}
        _move(chosen, name, [partial(backend.send, part, rank, TAG) for rank, part in sent.items()])
        data = parts[root]
    else:
        array = backend.empty((sizes[chosen.rank()],), np.uint8)
        _move(chosen, name, [partial(backend.receive, array, root, TAG)])
        data = backend.fetch(array)
    scatter_object_output_list[:1] = [decode(data)]


# -- bytes between ranks -----------------------------------------------------------------------------------------


@dataclass
class _Encoded:
    """A rank's value as bytes, or the text of the error why it has none."""

    data: bytes
    error: Exception | None = None


def _encoded(encoding: Callable[[], bytes], values: Any, size: int) -> _Encoded:
    """The result of `encoding`, unless `values` is not a list of `size`.

    An error is not raised yet: the other ranks wait in this call, and would take the next one for it."""
    try:
        _length(values, size)
        return _Encoded(encoding())
    except Exception as error:
        return _Encoded((str(getattr(error, "what", error)) or type(error).__name__).encode(), error)


def _all_gather_sizes(group: ProcessGroup, own: _Encoded, name: str) -> list[int]:
    """How many bytes each rank has. Raises an ArgumentError on all ranks if one of them has an error."""
    backend = group.backend
    gathered = backend.empty((group.size(), 2), np.int64)
    mine = backend.put(np.array([len(own.data), own.error is not None], np.int64))
    group.start(name, lambda: backend.all_gather(gathered, mine))
    sizes: list[int]
    sizes, failed = backend.fetch(gathered).T.tolist()
    if any(failed):
        texts = _all_gather_bytes(
            group, own.data if own.error else b"", [n if bad else 0 for n, bad in zip(sizes, failed, strict=True)], name
        )
        _raise_errors(group, own, {rank: texts[rank] for rank, bad in enumerate(failed) if bad}, name)
    return sizes


def _broadcast_sizes(group: ProcessGroup, own: _Encoded, sizes: list[int], root: int, name: str) -> list[int]:
    """The sizes that rank `root` has. Raises an ArgumentError on all ranks if it has an error."""
    backend = group.backend
    numbers = backend.put(np.array([len(own.data) if own.error else 0, *sizes], np.int64))
    group.start(name, lambda: backend.broadcast(numbers, root))
    failed, *sizes = backend.fetch(numbers).tolist()
    if failed:
        _raise_errors(group, own, {root: _broadcast_bytes(group, own.data, failed, root, name)}, name)
    return sizes


def _raise_errors(group: ProcessGroup, own: _Encoded, texts: dict[int, bytes], name: str) -> NoReturn:
    """This rank's own error, or one that names the others'."""
    if own.error is not None:
        raise own.error
    raise ArgumentError(
        f"{name}: {group.names(list(texts))} cannot send",
        extra={f"rank {group.ranks[rank]}": text.decode(errors="replace") for rank, text in texts.items()},
    )


def _all_gather_bytes(group: ProcessGroup, data: bytes, sizes: list[int], name: str) -> list[bytes]:
    """The bytes of all ranks. Small ones are padded to the longest; of other sizes, each rank sends its own to all."""
    backend = group.backend
    if len(sizes) * max(sizes) > max(PADDED, 2 * sum(sizes)):
        return [_broadcast_bytes(group, data, size, rank, name) for rank, size in enumerate(sizes)]
    padded = np.zeros(max(sizes), np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    gathered, own = backend.empty((group.size(), len(padded)), np.uint8), backend.put(padded)
    group.start(name, lambda: backend.all_gather(gathered, own))
    return [row[:size].tobytes() for row, size in zip(backend.fetch(gathered), sizes, strict=True)]


def _broadcast_bytes(group: ProcessGroup, data: bytes, size: int, root: int, name: str) -> bytes:
    """The `size` bytes of rank `root`."""
    backend = group.backend
    content = np.array(np.frombuffer(data, np.uint8)) if group.rank() == root else np.zeros(size, np.uint8)
    moved = backend.put(content)
    group.start(name, lambda: backend.broadcast(moved, root))
    return bytes(backend.fetch(moved).tobytes())


class _Requests:
    """Several messages as one operation."""

    def __init__(self, requests: list[Any]) -> None:
        self._requests = requests

    def test(self) -> bool:
        return all(request.test() for request in self._requests)

    def join(self) -> None:
        for request in self._requests:
            request.join()


def _move(group: ProcessGroup, name: str, messages: list[Callable[[], Any]]) -> None:
    """Send or receive these messages, as one collective of all ranks."""
    group.start(name, lambda: _Requests([begin() for begin in messages]))


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


def decode(message: Any) -> Any:
    """What `encode` was given, from its bytes or an array of them. Raises LoadError for others."""
    data = memoryview(message)
    end = 8 + int.from_bytes(data[:8], "little")
    place = end

    def read(size: int) -> memoryview:
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
            return bytes(read(rest[0]))
        if kind in ("list", "tuple"):
            made = [value(item) for item in rest]
            return made if kind == "list" else tuple(made)
        if kind == "dict":
            return {value(key): value(item) for key, item in rest}
        dtype, shape = DTYPES[rest[0]], rest[1]
        array = np.frombuffer(read(dtype.itemsize * int(np.prod(shape, dtype=np.int64))), dtype).reshape(shape).copy()
        return make_tensor(array) if kind == "tensor" else array

    try:
        return value(json.loads(bytes(data[8:end])))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise error if isinstance(error, LoadError) else LoadError(f"a message is damaged: {error}") from error
