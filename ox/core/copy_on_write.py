"""Arrays that others read in place of a copy; whoever writes one first leaves them a copy of what it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from numpy import ndarray

from ox.core.memory_format import layout
from ox.core.tensor import TensorBase
from ox.core.views import living_views
from ox.devices import cuda_state

Array = ndarray[Any, Any]

SMALLEST = 1 << 20  # bytes; a smaller array may as well be copied
_lenders: dict[int, tuple[CopyOnWrite, Array]] = {}  # and the array that is lent, by the id of it and of its base


class CopyOnWrite:
    """Lends the arrays of tensors as a context. Meanwhile they are read-only: code of NumPy cannot write them, and a
    write in place by a tensor (`Tensor.assign`, ``x[i] = y``) calls `before_write`, which makes them writeable.

    Left out are arrays that something else than their tensor refers to, as a view does: a write could pass unseen.

    Args:
        held: how many references there are, by the id of an array, of those who never write it.
    """

    def __init__(self, tensors: Iterable[TensorBase], held: Mapping[int, int]) -> None:
        self._tensors, self._held = {id(tensor): tensor for tensor in tensors}, held
        self._arrays: dict[int, Array] = {}  # what is lent, by its id
        self._written: dict[int, Array] = {}  # what arrays held, until `restore`
        self.readers: list[Callable[[Array, Array], None]] = []  # each is given an array, and what takes its place

    def __enter__(self) -> CopyOnWrite:
        for tensor in self._tensors.values():
            array = tensor.array
            if not isinstance(array, ndarray) or array.nbytes < SMALLEST or not array.flags.writeable:
                continue
            # three of the references are the tensor's, that of the name here, and the argument
            alone = sys.getrefcount(array) - 3 <= self._held.get(id(array), 0)
            if alone and (array.base is None or sys.getrefcount(array.base) <= 2):
                array.flags.writeable = False
                self._arrays[id(array)] = array
                _lenders.update((number, (self, array)) for number in _ids(array))
        return self

    def __exit__(self, *_: object) -> None:
        for array in self._arrays.values():
            for number in _ids(array):
                del _lenders[number]
            array.flags.writeable = True
        for tensor in self._tensors.values():
            if id(tensor.array) in self._arrays:
                for view in living_views(tensor):  # which code has made meanwhile, and kept
                    view.array.flags.writeable = not layout(view.array).overlaps()
        self._arrays.clear()

    def lends(self, array: Any) -> bool:
        """Whether the array may be read in place of a copy, as nobody has written it since `restore`."""
        return id(array) in self._arrays and id(array) not in self._written

    def restore(self) -> None:
        """Give the arrays back what they held before they were written."""
        for number, kept in self._written.items():
            self._arrays[number][...] = kept
            self._arrays[number].flags.writeable = False
        self._written.clear()

    def leave_copy(self, array: Array) -> None:
        """The array is about to be written."""
        if self.lends(array):
            kept = self._written[id(array)] = cuda_state.copy(array)
            for reader in self.readers:
                reader(array, kept)
            array.flags.writeable = True


def before_write(array: Array) -> bool:
    """Make read-only memory writeable if it is only lent, or a view of what is. Whether it was."""
    for number in _ids(array):
        if number in _lenders:
            lender, lent = _lenders[number]
            lender.leave_copy(lent)
            array.flags.writeable = True
            return True
    return False


def _ids(array: Array) -> Iterator[int]:
    """Of the array, and of those whose memory it shows."""
    owner: Any = array
    while isinstance(owner, ndarray):
        yield id(owner)
        owner = owner.base
