"""Tensors that code may write while it is recorded, and that are put back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ox.core.copy_on_write import CopyOnWrite

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


@contextmanager
def restored(tensors: Iterable[Tensor], lender: CopyOnWrite | None = None) -> Iterator[None]:
    """Values, versions and gradients of the tensors are afterwards what they were; so is their memory.

    Args:
        lender: has the arrays of which no copy is needed before they are written.
    """
    kept = []
    for t in tensors:
        copy = None if lender is not None and lender.lends(t.array) else t.array.copy()
        kept.append((t, copy, t.array, t.grad, t._writes and list(t._writes)))
    try:
        yield
    finally:
        if lender is not None:
            lender.restore()
        for tensor, copy, memory, grad, version in kept:
            if copy is not None:
                memory[...] = copy
            tensor.array, tensor.grad = memory, grad
            if tensor._writes is not None:
                tensor._writes[:] = version or [0, ""]
