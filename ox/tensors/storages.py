"""Tensors that share memory, when they are copied or saved: the copies share theirs in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ox.core import operator
from ox.core.memory_format import address, layout
from ox.core.tensor import TensorBase
from ox.devices import cuda_state

_MEMO = "ox.tensors.storages"  # where a deepcopy notes what it has copied
_MOST_SINGLE = 32  # views of one array that are copied apart; more are copied with all of it


@dataclass
class Storage:
    """Bytes that one tensor shows, or several that overlap."""

    owner: Any  # the array that has the memory
    begin: int  # an address
    end: int
    sources: list[TensorBase]
    copies: list[TensorBase] = field(default_factory=list)
    buffer: Any = None  # the copied bytes, once several copies show them
    roots: dict[Any, TensorBase] = field(default_factory=dict)  # all of the buffer, by element type

    @classmethod
    def of(cls, tensor: TensorBase) -> Storage:
        array = tensor.array
        owner = array
        while isinstance(owner.base, type(array)):
            owner = owner.base
        first, last = layout(array).span()
        start = address(array)
        return cls(owner, start + first * array.itemsize, start + (last + 1) * array.itemsize, [tensor])

    def shares(self, other: Storage) -> bool:
        """Whether both have bytes in common, and a write to a tensor of one is seen in a tensor of the other.

        Of two arrays that overlap that is so if they have one version counter, or if both can be written: a read-only
        one is copied before it is written.
        """
        if self.begin >= other.end or other.begin >= self.end or not _is_flat(self.owner):
            return False
        return any(
            (a._writes is not None and a._writes is b._writes) or (_is_writable(a) and _is_writable(b))
            for a in self.sources
            for b in other.sources
        )

    def merge(self, others: Iterable[Storage]) -> None:
        """Take over the tensors of other storages of the same memory."""
        for other in others:
            self.sources += other.sources
            self.copies += other.copies
            if other.begin < self.begin or other.end > self.end:
                self.begin, self.end = min(self.begin, other.begin), max(self.end, other.end)
                self.buffer = None

    def widen(self) -> None:
        """Reach over the whole memory."""
        self.begin = address(self.owner)
        self.end = self.begin + self.owner.nbytes
        self.buffer = None

    def bytes(self) -> Any:
        """The bytes themselves, without a copy."""
        start = address(self.owner)
        rows = self.owner if self.owner.flags.c_contiguous else self.owner.T
        return rows.reshape(-1).view(np.uint8)[self.begin - start : self.end - start]

    def share(self, new: int) -> None:
        """Let the copies, of which `new` are new, show the same memory as their sources do."""
        if self.buffer is None:
            new = len(self.copies)
            with cuda_state.at(self.owner):
                self.buffer = self.bytes().copy()
            self.roots.clear()
        for source, made in zip(self.sources[-new:], self.copies[-new:], strict=True):
            made.array = view_of(self.buffer, source.array, address(source.array) - self.begin)
            relate(made, self.buffer, self.roots)


def view_of(buffer: Any, like: Any, offset: int) -> Any:
    """An array with the shape, type and strides of `like` in the bytes of `buffer`. Raises ValueError where it would
    reach outside."""
    if isinstance(buffer, np.ndarray):
        made = np.ndarray(like.shape, like.dtype, buffer, offset, like.strides)
        made.flags.writeable = not layout(made).overlaps()
        return made
    return type(buffer)(like.shape, like.dtype, memptr=buffer.data + offset, strides=like.strides)


def relate(tensor: TensorBase, buffer: Any, roots: dict[Any, TensorBase]) -> None:
    """Let a tensor that shows bytes of `buffer` know of the others that do: a write to one counts for all.

    Args:
        roots: tensors of all of `buffer`, by element type; one is added where none is there.
    """
    dtype = tensor.array.dtype
    if dtype not in roots:
        root = operator.make_tensor(buffer[: buffer.size // dtype.itemsize * dtype.itemsize].view(dtype))
        root._writes = next((other._writes for other in roots.values()), None) or [0, ""]
        roots[dtype] = root
    tensor._base = tensor._viewed = tensor._origin = None
    if tensor.node is None:
        tensor.alias_of(roots[dtype])
    else:
        tensor._writes = roots[dtype]._writes  # a leaf is no view


def share_as(memo: dict[Any, Any], source: TensorBase, made: TensorBase) -> None:
    """Called on a copy: gives it memory in common with the copies, noted in `memo`, of tensors that `source` has memory
    in common with."""
    if not source.array.size:
        return
    new = Storage.of(source)
    new.copies.append(made)
    storages: list[Storage] = memo.setdefault(_MEMO, {}).setdefault(id(new.owner), [])
    partners = [each for each in storages if each.shares(new)]
    if not partners and len(storages) >= _MOST_SINGLE and _is_writable(source) and _is_flat(new.owner):
        partners = [each for each in storages if all(map(_is_writable, each.sources))]
    if not partners:
        storages.append(new)
        return
    first, *others = partners
    added = [*others, new]
    count = sum(len(each.copies) for each in added)
    first.merge(added)
    if first.buffer is None and len(first.copies) > 2:
        first.widen()
    storages[:] = [each for each in storages if all(each is not other for other in others)]
    first.share(count)


def shared_storages(tensors: Iterable[TensorBase]) -> list[Storage]:
    """The storages that several of these tensors show, each with its tensors."""
    by_owner: dict[int, list[Storage]] = {}
    for tensor in tensors:
        if tensor.array.size:
            new = Storage.of(tensor)
            by_owner.setdefault(id(new.owner), []).append(new)
    result = []
    for storages in by_owner.values():
        merged: list[Storage] = []
        for new in sorted(storages, key=lambda each: each.begin):
            for each in [each for each in merged if each.shares(new)]:
                merged.remove(each)
                each.merge([new])
                new = each
            merged.append(new)
        result += [each for each in merged if len(each.sources) > 1]
    return result


def _is_flat(owner: Any) -> bool:
    """Whether the memory of an array has no gaps."""
    return bool(owner.flags.c_contiguous or owner.flags.f_contiguous)


def _is_writable(tensor: TensorBase) -> bool:
    return not isinstance(tensor.array, np.ndarray) or tensor.array.flags.writeable
