"""Storages and the tensors that show them: every size is checked before memory is allocated."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.dtypes import DType, bfloat16, bool_, is_floating
from ox.serialization.parameters import parameter
from ox.serialization.torch_checkpoint.errors import MIB, Budget, UnreadableError
from ox.sparse.creation import of_file
from ox.sparse.tensor import SparseTensor

_MOST_DIMENSIONS = 64
_EXPANDED = 64 * MIB  # bytes that a tensor may show beyond its storage, as an expanded one does


@dataclass(eq=False)
class Storage:
    """Bytes of a file. `read` gives them as a uint8 array, once."""

    key: str
    size: int  # bytes
    dtype: DType | None  # None: those of the tensors
    swapped: bool  # in the other byte order than this machine's
    location: str
    read: Callable[[], Any]
    views: set[tuple[Any, ...]] = field(default_factory=set)  # what its tensors show
    tensors: dict[tuple[Any, ...], Any] = field(default_factory=dict)  # the tensors, by that
    _raw: Any = None
    _bytes: dict[tuple[int, bool], Any] = field(default_factory=dict)  # by width, and whether they are bools
    _roots: dict[DType, Any] = field(default_factory=dict)

    def bytes(self, dtype: DType) -> Any:
        """In this machine's order, aligned; bools are 0 and 1."""
        form = dtype.itemsize, dtype == bool_
        if form not in self._bytes:
            if self._raw is None:
                self._raw = self.read()
            raw = self._raw
            if self.swapped and dtype.itemsize > 1:
                whole = self.size // dtype.itemsize * dtype.itemsize
                raw = raw[:whole].view(f"u{dtype.itemsize}").byteswap().view(np.uint8)
            if raw.ctypes.data % dtype.itemsize:
                raw = raw.copy()
            if dtype == bool_ and self.size and raw.max() > 1:
                raw = (raw != 0).view(np.uint8)
            self._bytes[form] = raw
        return self._bytes[form]

    def root(self, dtype: DType) -> Any:
        """All of it as one flat tensor, which its views are views of."""
        if dtype not in self._roots:
            whole = self.size // dtype.itemsize * dtype.itemsize
            self._roots[dtype] = make_tensor(self.bytes(dtype)[:whole].view(dtype))
        return self._roots[dtype]


@dataclass(eq=False)
class TensorSpec:
    """A tensor to be: what it shows of which storage."""

    storage: Storage
    dtype: DType
    offset: int  # in elements, as are the strides
    size: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool = False
    is_parameter: bool = False

    def place(self) -> tuple[Any, ...]:
        return self.dtype, self.offset, self.size, self.stride

    def tensor(self) -> Any:
        """The tensor; the same one for all that show the same, so that what was tied stays tied."""
        me = *self.place(), self.requires_grad, self.is_parameter
        if me not in self.storage.tensors:
            self.storage.tensors[me] = self._make()
        return self.storage.tensors[me]

    def _make(self) -> Any:
        array = self.array()
        made = make_tensor(array)
        if self.is_parameter:
            return parameter(made, self.requires_grad)
        if self.requires_grad and is_floating(self.dtype):
            return made.requires_grad_()
        if len(self.storage.views) > 1 and array.size:
            made.alias_of(self.storage.root(self.dtype))
        return made

    def array(self) -> Any:
        width = self.dtype.itemsize
        if not prod(self.size):
            return np.empty(self.size, self.dtype)
        strides = [step * width if count > 1 else width for count, step in zip(self.size, self.stride, strict=True)]
        return np.ndarray(self.size, self.dtype, self.storage.bytes(self.dtype), self.offset * width, strides)


def tensor_spec(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, dtype: DType | None, budget: Budget
) -> TensorSpec:
    """Checked against what the storage really holds.

    Raises:
        UnreadableError: sizes, strides or an offset that are none, or that reach outside.
    """
    if type(storage) is not Storage:
        raise UnreadableError(f"a tensor of something that is no storage ({type(storage).__name__})")
    if not _counts((offset,)) or not _counts(size) or not _counts(stride) or len(size) != len(stride):
        raise UnreadableError("a tensor whose offset, sizes or strides are no numbers from 0 on")
    if len(size) > _MOST_DIMENSIONS:
        raise UnreadableError(f"a tensor of {len(size)} dimensions", expected=f"{_MOST_DIMENSIONS} at most")
    kind = dtype if dtype is not None else storage.dtype
    if kind is None:
        raise UnreadableError("a tensor without an element type")
    if storage.dtype is not None and kind != storage.dtype:
        raise UnreadableError(f"a tensor of {kind} in a storage of {storage.dtype}")
    held, count = storage.size // kind.itemsize, prod(size)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if count else offset - 1
    if last >= held or offset > held:
        raise UnreadableError(
            f"a tensor of shape {list(size)} that reaches outside its storage",
            expected=f"{held} elements of {kind} at most (storage {storage.key!r} has {storage.size} bytes)",
            hint="an earlier checkpoint; this one is damaged or was made to deceive",
        )
    if (count - held) * kind.itemsize > _EXPANDED:
        raise UnreadableError(
            f"a tensor of shape {list(size)} that shows the {held} elements of its storage again and again",
            hint="where it was saved: tensor.contiguous() before torch.save",
        )
    budget.take(2000)
    made = TensorSpec(storage, kind, offset, tuple(size), tuple(stride), requires_grad is True)
    storage.views.add(made.place())
    return made


def _counts(values: Any) -> bool:
    return isinstance(values, tuple) and all(type(n) is int and 0 <= n < 2**63 for n in values)


@dataclass(eq=False)
class SparseSpec:
    """A sparse tensor to be, in coordinate form."""

    indices: TensorSpec
    values: TensorSpec
    size: tuple[int, ...]
    coalesced: bool

    def tensor(self) -> SparseTensor:
        return of_file(self.indices.tensor(), self.values.tensor(), self.size, self.coalesced)


def swapped(order: str) -> bool:
    """Whether a file of this byte order is not of this machine's."""
    return order != sys.byteorder


# torch.FloatStorage and its like, by what stands before "Storage"
STORAGES: dict[str, DType] = {
    "Float": np.dtype(np.float32),
    "Double": np.dtype(np.float64),
    "Half": np.dtype(np.float16),
    "BFloat16": bfloat16,
    "Long": np.dtype(np.int64),
    "Int": np.dtype(np.int32),
    "Short": np.dtype(np.int16),
    "Char": np.dtype(np.int8),
    "Byte": np.dtype(np.uint8),
    "Bool": bool_,
}
